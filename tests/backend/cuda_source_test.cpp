// Generated CUDA goes through NVRTC, for three architectures. No GPU is needed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "backend/cuda/attention_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/product_source.h"
#include "backend/cuda/recurrent_source.h"
#include "backend/cuda/stored_matrix.h"
#include "backend/cuda_programs.h"
#include "backend/cuda_shim.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

using I = Instruction;
using testing_programs::ProgramMaker;
using testing_programs::Style;

/// Why nothing can be compiled here, or nothing.
std::string missing_nvrtc() {
  try {
    nvrtc_version();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

/// Many kernels in one source.
std::string joined_source(const std::vector<KernelSource>& kernels, std::size_t begin, std::size_t end) {
  std::string text = prelude();
  for (std::size_t k = begin; k < end; ++k) text += shim::renamed(kernels[k], fmt::format("kernel_{}", k));
  return text;
}

/// Compiles kernels [0, count) in pieces, on two threads; the first complaint.
std::string complaint(const std::vector<KernelSource>& kernels, std::size_t count, const char* architecture) {
  constexpr std::size_t kPiece = 6;
  std::array<std::string, 2> complaints;
  const auto work = [&](std::size_t thread) {
    for (std::size_t at = thread * kPiece; at < count; at += 2 * kPiece) try {
        compile(joined_source(kernels, at, std::min(at + kPiece, count)), architecture);
      } catch (const Error& e) {
        complaints[thread] = e.what();
        return;
      }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return complaints[complaints[0].empty() ? 1 : 0];
}

TEST(CudaSource, EveryInstructionCompiles) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  ProgramSpec spec;
  spec.domain = {64, 64};
  spec.row_dims = 1;
  spec.inputs = {{.strides = {64, 1}}, {.strides = {0, 1}}};
  Program& p = spec.program;
  const Register a = p.load(0), b = p.load(1);
  Register sum = a;
  for (int f = 0; f <= static_cast<int>(I::kReduceL1); ++f) {
    const auto function = static_cast<I>(f);
    const bool is_other = function >= I::kGelu && function <= I::kFakeQuantize;
    if (!is_unary_instruction(function) && !is_binary_instruction(function) && !is_row_instruction(function) &&
        !is_other)
      continue;
    const Register result = p.apply(function, a, is_binary_instruction(function) ? b : -1, 0.5f, 2.0f);
    sum = p.apply(I::kAdd, sum, result);
  }
  spec.outputs = {{.source = sum, .strides = {64, 1}}};
  const KernelSource source = program_source(spec);
  for (const char* architecture : {"sm_80", "sm_90", "sm_120"})
    EXPECT_GT(compile(source.source, architecture).size(), 0u);
}

TEST(CudaSource, RandomProgramsCompile) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  const unsigned seed = std::random_device{}() % 1000000;
  std::printf("seed %u\n", seed);
  std::vector<KernelSource> kernels;
  for (unsigned i = 0; i < 200; ++i) kernels.push_back(program_source(ProgramMaker(seed + i, Style::kAny).make()));
  EXPECT_EQ(complaint(kernels, 200, "sm_90"), "") << "seed " << seed;
  EXPECT_EQ(complaint(kernels, 66, "sm_80"), "") << "seed " << seed;
  EXPECT_EQ(complaint(kernels, 66, "sm_120"), "") << "seed " << seed;
}

/// Products with the program behind them: sizes, orders of rows and programs by chance, every tile once.
TEST(CudaSource, FusedProductsCompile) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  const unsigned seed = std::random_device{}() % 1000000;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto any = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  constexpr std::array kTypes{DataType::kFloat16, DataType::kBFloat16, DataType::kFloat8E4M3, DataType::kInt8};
  std::set<std::string> seen;
  for (int i = 0; i < 800 && seen.size() < 40; ++i) {
    FusedProductSpec spec;
    const std::int64_t outer = any(1, 8), inner = any(16, 600), n = 8 * any(1, 400), k = 16 * any(8, 200);
    const bool turned = any(0, 1) == 1;
    spec.product = {.m = outer * inner, .n = n, .k = k, .operands = kTypes[static_cast<std::size_t>(any(0, 3))]};
    spec.product.fast = any(0, 1) == 1;
    const bool bytes = size_of(spec.product.operands) == 1;
    const DataType wide = bytes ? DataType::kFloat16 : spec.product.operands;
    spec.product.a = {k, 1, 0};
    spec.product.b = {1, k, 0};
    spec.row_strides = turned ? std::vector<std::int64_t>{1, outer} : std::vector<std::int64_t>{inner, 1};
    spec.program.domain = {outer, inner, n};
    const std::vector<std::int64_t> dense{inner * n, n, 1};
    spec.program.inputs = {{.type = spec.product.operands == DataType::kInt8 ? DataType::kInt32 : DataType::kFloat32,
                            .strides = {spec.row_strides[0] * n, spec.row_strides[1] * n, 1}},
                           {wide, {0, 0, 1}},
                           {DataType::kFloat16, any(0, 1) == 1 ? dense : std::vector<std::int64_t>{n, 0, 0}}};
    Program& p = spec.program.program;
    const Register sum = p.apply(I::kAdd, p.load(0), p.load(1));
    const Register result = p.apply(I::kMul, p.apply(I::kGelu, sum), p.load(2));
    spec.program.outputs = {{result, wide, dense}, {sum, DataType::kFloat32, dense}};
    if (bytes) {
      spec.program.outputs[0].type = spec.product.operands;
      spec.program.outputs[0].quantization = {
          0.125F, spec.product.operands == DataType::kInt8 ? Format::kInt8 : Format::kFloat8E4M3};
    }
    if (!has_fused_source(spec)) continue;
    for (const ProductTile& tile : product_tiles(spec, static_cast<int>(any(1, 140)))) {
      ASSERT_TRUE(tile_of(tile.text()).has_value()) << tile.text();
      const bool fp8 = spec.product.operands == DataType::kFloat8E4M3;
      const std::string kind =
          fmt::format("{} {}{}", tile.text(), name_of(spec.product.operands), fp8 && spec.product.fast ? " fast" : "");
      if (!seen.insert(kind).second) continue;
      const FusedProductKernel kernel = fused_product_source(spec, tile, 132);
      EXPECT_LE(kernel.source.shared, 227u << 10) << tile.text();
      EXPECT_EQ(kernel.source.grid[0] % static_cast<unsigned>(tile.cluster), 0u) << tile.text();
      EXPECT_GT(compile(kernel.source.source, "sm_90a").size(), 0u) << kind << ", seed " << seed;
    }
  }
  EXPECT_GT(seen.size(), 16u) << "seed " << seed;
}

TEST(CudaSource, LargeProgramsCompile) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  // Indices beyond 2^31: 64-bit arithmetic.
  ProgramSpec spec;
  spec.domain = {3, 1 << 20, 1024};
  spec.row_dims = 1;
  spec.inputs = {{DataType::kFloat16, {1 << 30, 1024, 1}}};
  Program& p = spec.program;
  const Register x = p.load(0);
  spec.outputs = {{p.apply(I::kSub, x, p.apply(I::kReduceMax, x)), DataType::kFloat16, {1 << 30, 1024, 1}}};
  const KernelSource source = program_source(spec);
  EXPECT_NE(source.source.find("i64 q ="), std::string::npos);
  EXPECT_GT(compile(source.source, "sm_90").size(), 0u);
}

TEST(CudaSource, RefusesFormatsByName) {
  ProgramSpec spec;
  spec.domain = {8};
  spec.inputs = {{.strides = {1}, .rounding = rounding_to(Format::kFloat16, true)}};
  spec.outputs = {{.source = spec.program.load(0), .strides = {1}}};
  EXPECT_THROW(program_source(spec), Error);
  spec.inputs[0].rounding = rounding_to(Format::kFloat8E4M3);
  EXPECT_THROW(program_source(spec), Error);
}

TEST(CudaSource, MovementCompiles) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  std::vector<KernelSource> kernels;
  static constexpr DataType kTypes[] = {DataType::kFloat16, DataType::kFloat32, DataType::kBFloat16, DataType::kBool,
                                        DataType::kInt8,    DataType::kInt32,   DataType::kInt64,    DataType::kUInt64};
  const Shape shape{4, 64, 128};
  for (DataType from : kTypes)
    for (DataType to : kTypes) {
      const StridedTensor in{from, shape, {64 * 128, 128, 1}};
      kernels.push_back(
          copy_source(in, {to, shape, from < to ? in.strides : std::vector<std::int64_t>{64 * 128, 1, 64}}));
    }
  const StridedTensor table{DataType::kFloat16, {1000, 128}, {128, 1}}, ids{DataType::kInt64, {4, 64}, {64, 1}};
  const StridedTensor image{DataType::kFloat16, {2, 64, 32, 32}, {65536, 1, 2048, 64}};
  const StridedTensor half{DataType::kFloat16, {2, 64, 16, 16}, {16384, 1, 1024, 64}};
  kernels.push_back(gather_source(table, ids, {DataType::kFloat16, shape, {8192, 128, 1}}, 0));
  kernels.push_back(gather_source(table, ids, {DataType::kFloat32, shape, {8192, 128, 1}}, 0));
  kernels.push_back(where_source({DataType::kBool, shape, {0, 128, 1}}, {DataType::kFloat16, shape, {8192, 128, 1}},
                                 {DataType::kFloat32, shape, {0, 0, 0}}, {DataType::kFloat16, shape, {8192, 128, 1}}));
  kernels.push_back(resample_source(image, {DataType::kFloat16, {2, 64, 64, 96}, {393216, 6144, 96, 1}},
                                    {{2, 2}, {3, 4}}, Rounding::kBF16, Rounding::kF16));
  for (bool average : {false, true})
    kernels.push_back(pool_source(image, half, {average, true, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, {1, 1}, Rounding::kF16,
                                  Rounding::kF16));
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16})
    kernels.insert(kernels.begin(), {matrix_source(type, {64, 64, 0, 64, 1}),
                                     magnitudes_source({type, {4, 64, 128}, {8192, 1, 64}})});
  for (const char* architecture : {"sm_80", "sm_90", "sm_120"})
    EXPECT_EQ(complaint(kernels, architecture == std::string_view("sm_90") ? kernels.size() : kernels.size() / 3,
                        architecture),
              "");
}

/// What takes the sums as they are.
AttentionSpec::Scores plain_scores() {
  AttentionSpec::Scores scores;
  scores.result = scores.program.load(0);
  return scores;
}

TEST(CudaSource, AttentionOfAllFormsCompiles) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  std::mt19937 random(11);
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
  };
  std::vector<KernelSource> kernels;
  std::set<std::string> forms;
  for (int i = 0; i < 28; ++i) {
    AttentionSpec spec;
    spec.flash = i % 2 == 0;
    spec.batch = pick({1, 8, 64});
    spec.heads = pick({1, 8, 12});
    spec.queries = pick({1, 17, 128, 1500});
    spec.keys = pick({1, 77, 128, 300, 1500});
    spec.depth = pick({8, 40, 64, 128, 256});
    spec.value_depth = pick({8, 64, 128});
    if (i >= 24) {  // Few queries, long rows, large heads: tiles of few keys, and warps that share them.
      spec.batch = spec.heads = 1;
      spec.keys = i < 26 ? 77 : 1500;
      spec.depth = spec.value_depth = 256;
    }
    spec.type = spec.stored = random() % 2 == 0 ? DataType::kFloat16 : DataType::kBFloat16;
    spec.q = spec.k = {0, spec.depth, spec.depth * spec.heads, 1};
    spec.v = spec.out = {0, spec.value_depth, spec.value_depth * spec.heads, 1};
    spec.scores = {plain_scores(), plain_scores()};
    if (const auto source = attention_source(spec)) {
      kernels.push_back(*source);
      // Everything but the sizes of the operands.
      std::string form;
      for (const char* what : {"ROW_TILES", "WARPS", "PARTS", "TILE", "FLASH"}) {
        const std::size_t at = source->source.find(fmt::format("#define {} ", what));
        form += source->source.substr(at, source->source.find('\n', at) - at);
      }
      forms.insert(std::move(form));
    }
  }
  EXPECT_GE(kernels.size(), 18u);
  EXPECT_GE(forms.size(), 8u) << "few forms: the sweep has become too narrow";
  std::array<std::string, 2> complaints;
  const auto work = [&](std::size_t thread) {
    for (std::size_t k = thread; k < kernels.size(); k += 2) try {
        compile(kernels[k].source, k % 5 == 0 ? "sm_120" : k % 3 == 0 ? "sm_90" : "sm_80");
      } catch (const Error& e) {
        complaints[thread] = e.what();
      }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(complaints[0] + complaints[1], "");
}

/// Rows of all heads side by side, as exporters lay them out.
AttentionSpec rows_of_heads(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t depth) {
  AttentionSpec spec;
  spec.batch = batch, spec.heads = heads;
  spec.queries = spec.keys = rows;
  spec.depth = spec.value_depth = depth;
  spec.q = spec.k = spec.v = spec.out = {rows * heads * depth, depth, heads * depth, 1};
  spec.scores = {plain_scores(), plain_scores()};
  return spec;
}

TEST(CudaSource, AttentionOfWarpGroupsCompiles) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  std::set<std::string> forms;
  int count = 0;
  for (const std::int64_t depth : {40, 64, 128})
    for (const std::int64_t rows : {700, 1370})
      for (const std::int64_t heads : {1, 8, 64}) {
        AttentionSpec spec = rows_of_heads(1, heads, rows, depth);
        spec.flash = count % 2 == 0;
        spec.type = count % 4 < 2 ? DataType::kFloat16 : DataType::kBFloat16;
        spec.stored = count % 3 == 0 ? DataType::kFloat32 : spec.type;
        spec.nan_is_zero = !spec.flash && count % 4 == 1;
        if (count % 3 == 1) spec.q_factor = spec.k_factor = count % 2 == 0 ? 0.5f : 0.3f;
        if (count % 5 == 4) spec.k[1] = spec.v[1] = 0;  // All heads read the same keys.
        ++count;
        const auto source = attention_source(spec, 132);
        ASSERT_TRUE(source.has_value());
        ASSERT_EQ(source->boxed.size(), 2u) << "not in warp groups";
        for (const char* what : {"ROW_GROUPS", "PARTS", "DQ"}) {
          const std::size_t at = source->source.find(fmt::format("#define {} ", what));
          forms.insert(source->source.substr(at, source->source.find('\n', at) - at));
        }
        EXPECT_NO_THROW(compile(source->source, "sm_90a")) << depth << ", " << rows << ", " << heads;
      }
  EXPECT_GE(forms.size(), 7u) << "few forms: the sweep has become too narrow";
}

TEST(CudaSource, AttentionOfWarpGroupsHasMemoryAndWhatTheirBoxesNeed) {
  for (std::int64_t depth = 8; depth <= 264; depth += 8)
    for (const std::int64_t rows : {1, 63, 64, 500, 1500, 8192})
      for (const std::int64_t heads : {1, 7, 200}) {
        AttentionSpec spec = rows_of_heads(heads == 7 ? 3 : 1, heads, rows, depth);
        spec.flash = heads != 7;
        const auto source = attention_source(spec, 132);
        if (!source || source->boxed.empty()) {
          EXPECT_TRUE(depth > 128 || rows <= 500) << depth << ", " << rows;
          continue;
        }
        EXPECT_LE(source->shared, 227u << 10);
        EXPECT_LE(source->block, 512u);
        EXPECT_GE(rows, 64);
        for (const BoxedMatrix& boxed : source->boxed) {
          EXPECT_EQ(boxed.row_stride % 8, 0);
          EXPECT_LE(boxed.box_rows, 256);
          for (const auto& [many, stride] : boxed.many) EXPECT_TRUE(many > 0 && stride > 0 && stride % 8 == 0);
        }
        EXPECT_TRUE(attention_source(spec)->boxed.empty()) << "other architectures have no warp groups";
        spec.k[2] += 4;  // Rows that are no whole words.
        EXPECT_TRUE(attention_source(spec, 132)->boxed.empty());
      }
}

TEST(CudaSource, RecurrentStepsCompile) {
  if (const std::string reason = missing_nvrtc(); !reason.empty()) GTEST_SKIP() << reason;
  std::vector<KernelSource> kernels;
  using ops::RecurrentCell;
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32})
    for (const auto& [cell, gates] :
         {std::pair{RecurrentCell::kLstm, 4}, {RecurrentCell::kGru, 3}, {RecurrentCell::kRnn, 1}})
      for (const std::int64_t batch : {1, 3, 64}) {
        RecurrentStepSpec spec;
        spec.form = {.cell = cell, .gates = gates, .sizes = {.seq = 7, .batch = batch, .hidden = 512, .directions = 2}};
        spec.form.linear_before_reset = cell == RecurrentCell::kGru && batch == 1;
        spec.form.clip = batch == 3 ? 2.0f : 0.0f;
        spec.weights = type;
        spec.biased = batch != 3;
        spec.peepholes = cell == RecurrentCell::kLstm && batch == 3;
        spec.sum_stride = 1024 * gates;
        if (batch != 3) spec.y = {type, rounding_of(type), 1024};
        for (KernelSource& source : recurrent_sources(spec)) kernels.push_back(std::move(source));
      }
  for (const char* architecture : {"sm_80", "sm_90", "sm_120"})
    EXPECT_EQ(complaint(kernels, architecture == std::string_view("sm_90") ? kernels.size() : kernels.size() / 3,
                        architecture),
              "");
}

}  // namespace
}  // namespace ulpscope::cuda
