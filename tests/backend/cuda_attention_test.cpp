// Attention in generated CUDA against its definition, run thread by thread on this processor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <regex>
#include <set>

#include "backend/cuda/attention_source.h"
#include "backend/cuda_elements.h"
#include "backend/cuda_shim.h"
#include "backend/seeds.h"

namespace ulpscope::cuda {
namespace {

using elements::read;
using elements::unit_at;

/// One head of one batch, and as many as its blocks are chosen for: all others are the same memory.
struct AttentionCase {
  std::string name;
  DataType type;
  std::int64_t queries, keys, depth, heads = 1;
  bool flash = true, masked = false, scaled = false;
  bool apart = false;  ///< Rows are no whole words: their elements lie apart.
  /// Of elements of fp8, with these scales of q, k and v; 0: of numbers.
  float q_scale = 0, k_scale = 0, v_scale = 0;
};
constexpr float kProbabilityScale = 1.0f / 448;

struct Operand {
  std::unique_ptr<shim::GuardedBuffer> memory;
  std::vector<double> values;

  Operand(std::int64_t count, std::int64_t step, DataType type, double spread, std::mt19937& random)
      : memory(std::make_unique<shim::GuardedBuffer>(static_cast<std::size_t>(count * step) * 2, 16, 0xff)) {
    std::normal_distribution<float> normal(0, static_cast<float>(spread));
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = normal(random);
      const std::uint16_t bits = type == DataType::kFloat16 ? f16_bits(x) : bf16_bits(x);
      elements::put_bits(memory->data() + i * step * 2, bits);
      values.push_back(read(type, memory->data() + i * step * 2));
    }
  }
};

/// What the softmax takes: a factor, and a mask of one row for all queries.
std::array<AttentionSpec::Scores, 2> scores_of(const AttentionCase& c, float factor) {
  std::array<AttentionSpec::Scores, 2> scores;
  Program& first = scores[0].program;
  const Register sum = first.load(0), by = first.constant(factor);
  scores[0].result = first.apply(Instruction::kMul, sum, by);
  Program& second = scores[1].program;
  scores[1].result = second.load(0);
  if (!c.masked) return scores;
  scores[1].result = second.apply(Instruction::kAdd, scores[1].result, second.load(1));
  scores[1].loads = {{DataType::kFloat32, {0, 0, 0, 1}}};
  return scores;
}

AttentionSpec spec_of(const AttentionCase& c, float factor) {
  const std::int64_t step = c.apart ? 2 : 1, row = c.depth * step;
  AttentionSpec spec;
  spec.heads = c.heads;
  spec.queries = c.queries;
  spec.keys = c.keys;
  spec.depth = spec.value_depth = c.depth;
  spec.type = spec.stored = c.type;
  spec.q = spec.k = spec.v = spec.out = {0, 0, row, step};
  spec.scores = scores_of(c, factor);
  spec.flash = c.flash;
  if (c.scaled) spec.q_factor = spec.k_factor = 0.5f;
  if (c.q_scale > 0) spec.score_elements = {c.q_scale, c.k_scale};
  if (c.v_scale > 0) spec.value_elements = {kProbabilityScale, c.v_scale};
  return spec;
}

double rounded(DataType type, double x) {
  const double unit = unit_at(type, x);
  return std::nearbyint(x / unit) * unit;
}

/// The number that an element of fp8 stands for.
double of_fp8(float x, float scale) {
  if (scale == 0) return x;
  const NumericFormat& format = format_of(Format::kFloat8E4M3);
  return decode(format, encode(format, static_cast<double>(x / scale), {.saturate = true})) *
         static_cast<double>(scale);
}

/// Probabilities, or exponentials, are within half a unit of what they are before they are rounded, at whatever larger
/// scale they are when that happens: so are the results.
void check(const AttentionCase& c, const AttentionSpec& spec, const shim::Kernels& kernels, std::size_t number,
           std::mt19937& random) {
  SCOPED_TRACE(c.name);
  const std::int64_t step = c.apart ? 2 : 1;
  const Operand q(c.queries * c.depth, step, c.type, 1.5, random), k(c.keys * c.depth, step, c.type, 1.5, random),
      v(c.keys * c.depth, step, c.type, 1, random);
  const shim::GuardedBuffer y(static_cast<std::size_t>(c.queries * c.depth * step) * 2, 16, 0xff);
  const shim::GuardedBuffer mask(static_cast<std::size_t>(c.keys) * 4, 16, 0);
  std::vector<double> added(static_cast<std::size_t>(c.keys), 0);
  if (c.masked)
    for (std::size_t j = 0; j < added.size(); ++j) {
      // The first tile of keys has no score at all; others grow, so that the largest one changes again and again.
      added[j] = j < 130 && j + 1 < added.size() ? -HUGE_VAL : static_cast<float>(static_cast<double>(j) * 0.05);
      elements::put_bits(mask.data() + j * 4, static_cast<float>(added[j]));
    }
  std::vector<void*> arguments{q.memory->data(), k.memory->data(), v.memory->data()};
  if (c.masked) arguments.push_back(mask.data());
  arguments.push_back(y.data());
  ASSERT_EQ(kernels.run(number, arguments), "");
  const double factor = static_cast<double>(spec.scores[0].program.values[1].constant);
  // Elements of probabilities have 4 bits, and no unit below 2^-9 of a scale.
  const double half = (c.v_scale > 0 ? 0x1p-4 + 0x1p-8 : c.type == DataType::kFloat16 ? 0x1p-11 : 0x1p-8) * 1.001;
  const double least =
      c.v_scale > 0 ? 0x1p-10 * static_cast<double>(kProbabilityScale) * 1.001 : unit_at(c.type, 0) / 2;
  const auto scaled = [&](double x, float scale) {
    return c.scaled ? rounded(c.type, x * 0.5) : of_fp8(static_cast<float>(x), scale);
  };
  std::vector<double> p(added.size());
  for (std::int64_t i = 0; i < c.queries; ++i) {
    double largest = -HUGE_VAL, sum = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < c.depth; ++d)
        dot += scaled(q.values[static_cast<std::size_t>(i * c.depth + d)], c.q_scale) *
               scaled(k.values[j * static_cast<std::size_t>(c.depth) + static_cast<std::size_t>(d)], c.k_scale);
      p[j] = dot * factor + added[j];
      largest = std::max(largest, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    for (std::int64_t d = 0; d < c.depth; ++d) {
      double result = 0, magnitude = 0, all = 0;
      for (std::size_t j = 0; j < p.size(); ++j) {
        const double x =
            of_fp8(static_cast<float>(v.values[j * static_cast<std::size_t>(c.depth) + static_cast<std::size_t>(d)]),
                   c.v_scale);
        result += p[j] / sum * x;
        magnitude += p[j] / sum * std::fabs(x);
        all += std::fabs(x);
      }
      const double got = read(c.type, y.data() + (i * c.depth + d) * step * 2);
      const double bound = (half + 0x1p-15) * magnitude + least * all + unit_at(c.type, result) * 0.51;
      ASSERT_LE(std::fabs(got - result), bound) << "query " << i << ", " << d << ": " << got << " for " << result;
    }
  }
}

TEST(CudaAttention, IsTheDefinition) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no compiler";
  const DataType half = DataType::kFloat16, bfloat = DataType::kBFloat16;
  const std::vector<AttentionCase> cases{
      {"rows in registers", half, 37, 77, 64},
      {"rows in registers, normalized", half, 37, 77, 64, 1, false},
      {"rows in registers, parts", bfloat, 20, 150, 40, 1, true, true},
      {"tiles, normalized", half, 20, 700, 64, 1, false, true},
      {"few blocks", half, 20, 700, 64, 1, true, true, true},
      {"more blocks", bfloat, 70, 640, 64, 70, true, true},
      {"enough blocks", half, 70, 333, 32, 200, true, false, true},
      {"two tiles of queries", half, 150, 450, 64, 140, true, true},
      {"two tiles of queries, keys in whole tiles", bfloat, 130, 640, 48, 140, true, false, true},
      {"large heads", half, 33, 500, 96, 300, true, true},
      {"queries in shared memory", bfloat, 9, 300, 160, 300, true, true, true},
      {"elements apart", half, 9, 400, 24, 1, true, false, true, true},
      {"fp8, rows in registers", half, 37, 77, 64, 1, false, true, false, false, 0.011f, 0.03f, 0.0125f},
      {"fp8 scores alone, rows in registers", bfloat, 20, 150, 40, 1, false, false, false, false, 0.017f, 0.0625f},
      {"fp8, tiles", half, 20, 700, 64, 1, false, true, false, false, 0.011f, 0.03f, 0.01f},
      {"fp8, queries in shared memory", bfloat, 9, 300, 160, 300, false, true, false, false, 0.011f, 0.03f, 0.01f},
      {"fp8, large blocks", half, 130, 77, 64, 300, false, true, false, false, 0.011f, 0.03f, 0.01f},
      {"fp8 values alone, elements apart", half, 9, 400, 24, 1, false, false, false, true, 0, 0, 0.01f},
  };
  std::vector<KernelSource> sources;
  std::set<std::string> forms;
  for (const AttentionCase& c : cases) {
    const auto source = attention_source(spec_of(c, 1.0f / std::sqrt(static_cast<float>(c.depth))));
    ASSERT_TRUE(source) << c.name;
    sources.push_back(*source);
    sources.back().grid[1] = 1;
    std::string form;
    for (const char* name : {"FLASH", "WARPS", "PARTS", "ROW_TILES", "COPIES", "QUERIES_KEPT", "WHOLE_K"}) {
      std::smatch found;
      std::regex_search(source->source, found, std::regex(fmt::format("#define {} (\\w+)", name)));
      form += found[1].str() + " ";
    }
    forms.insert(form);
  }
  EXPECT_GE(forms.size(), 9u) << "few forms: the cases have become too narrow";
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  const std::uint32_t start = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", start));
  std::mt19937 random(start);
  for (std::size_t i = 0; i < cases.size() && !HasFatalFailure(); ++i)
    check(cases[i], spec_of(cases[i], 1.0f / std::sqrt(static_cast<float>(cases[i].depth))), kernels, i, random);
}

/// A row without a score is NaN, and so is one with a NaN or an infinite score; others are not, those with the least
/// float32 as all their scores among them.
TEST(CudaAttention, RowsWithoutAResultAreNaN) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no compiler";
  const AttentionCase c{"rows", DataType::kFloat16, 6, 700, 16, 1, true};
  AttentionSpec spec = spec_of(c, 1.0f);
  Program& program = spec.scores[1].program;
  spec.scores[1].result = program.apply(Instruction::kAdd, spec.scores[1].result, program.load(1));
  spec.scores[1].loads = {{DataType::kFloat32, {0, 0, c.keys, 1}}};
  const shim::Kernels kernels({*attention_source(spec)}, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::mt19937 random(1);
  const Operand q(c.queries * c.depth, 1, c.type, 1, random), k(c.keys * c.depth, 1, c.type, 1, random),
      v(c.keys * c.depth, 1, c.type, 1, random);
  const shim::GuardedBuffer y(static_cast<std::size_t>(c.queries * c.depth) * 2, 16, 0);
  const shim::GuardedBuffer mask(static_cast<std::size_t>(c.queries * c.keys) * 4, 16, 0);
  const auto put = [&](std::int64_t i, std::int64_t j, double x) {
    elements::put_bits(mask.data() + (i * c.keys + j) * 4, static_cast<float>(x));
  };
  for (std::int64_t j = 0; j < c.keys; ++j)
    put(1, j, -HUGE_VAL), put(4, j, j == 699 ? 0 : -HUGE_VAL), put(5, j, -std::numeric_limits<float>::max());
  put(2, 300, std::nan(""));
  put(3, 5, HUGE_VAL);
  ASSERT_EQ(kernels.run(0, {q.memory->data(), k.memory->data(), v.memory->data(), mask.data(), y.data()}), "");
  for (std::int64_t i = 0; i < c.queries; ++i)
    for (std::int64_t d = 0; d < c.depth; ++d) {
      const double got = read(c.type, y.data() + (i * c.depth + d) * 2);
      EXPECT_EQ(std::isnan(got), i >= 1 && i <= 3) << i << " " << d;
      double mean = 0;
      for (std::int64_t j = 0; j < c.keys; ++j) mean += v.values[static_cast<std::size_t>(j * c.depth + d)] / 700;
      if (i == 5) EXPECT_NEAR(got, mean, 1e-3);
      if (i == 4) EXPECT_EQ(got, v.values[static_cast<std::size_t>(699 * c.depth + d)]);
    }
}

}  // namespace
}  // namespace ulpscope::cuda
