// Generated convolutions: compiled for every architecture, and run as C++ against the definition in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cuda/convolution_code.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda_shim.h"
#include "backend/random_convolutions.h"
#include "backend/seeds.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

using namespace random_convolutions;

/// A sum, plus a bias per channel, plus a residual; clipped at 0. Also the sums alone, in float32 and another order.
struct Case {
  ConvolutionSpec spec;
  Program program;
  std::vector<ProgramInput> loads;
  std::vector<ProgramOutput> outputs;
};

std::vector<std::int64_t> channels_last_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t next = shape[1];
  for (std::size_t i = shape.size(); i-- > 2; next *= shape[i]) strides[i] = next;
  strides[0] = next;
  return strides;
}

std::vector<std::int64_t> row_major_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

Case random_case(std::mt19937& random) {
  Case made{.spec = random_spec(random, 40, 9)};
  const Shape& shape = made.spec.output;
  Program& p = made.program;
  const Register sum = p.load(0), bias = p.load(1), residual = p.load(2);
  const Register all = p.apply(Instruction::kAdd, p.apply(Instruction::kAdd, sum, bias), residual);
  const Register clipped = p.apply(Instruction::kRelu, all);
  made.loads.resize(2);
  made.loads[0].strides.assign(shape.size(), 0);
  made.loads[0].strides[1] = 1;
  made.loads[1].strides = channels_last_strides(shape);
  made.loads[1].type = made.spec.stored;
  made.outputs.resize(2);
  made.outputs[0] = {.source = clipped, .type = made.spec.stored, .strides = channels_last_strides(shape)};
  made.outputs[1] = {.source = sum, .type = DataType::kFloat32, .strides = row_major_strides(shape)};
  return made;
}

/// As in memory of the other type, near enough to the float64 value.
bool matches(float got, double want, double magnitude, DataType type) {
  if (type == DataType::kInt8) return got == static_cast<float>(want);
  if (type == DataType::kFloat16 && std::fabs(want) > 65500) return std::fabs(got) > 65400;  // Infinite, or nearly.
  const double unit = type == DataType::kFloat16 ? 0x1p-10 : type == DataType::kBFloat16 ? 0x1p-7 : 0;
  return std::fabs(got - want) <= unit * std::fabs(want) + 0x1p-20 * magnitude + (unit == 0 ? 0 : 0x1p-24);
}

float element(const unsigned char* bytes, std::size_t i, DataType type) {
  std::uint16_t half = 0;
  float single = 0;
  std::memcpy(type == DataType::kFloat32 ? static_cast<void*>(&single) : &half, bytes + i * size_of(type),
              size_of(type));
  return type == DataType::kFloat16 ? f16_value(half) : type == DataType::kBFloat16 ? bf16_value(half) : single;
}

std::string describe(const ConvolutionSpec& spec) {
  return fmt::format("x {} w {} y {} groups {} {} to {}{} strides {} dilations {} pads {} {}", to_string(spec.input),
                     to_string(spec.weights), to_string(spec.output), spec.groups, name_of(spec.operands),
                     name_of(spec.stored), spec.tf32 ? " tf32" : "", to_string(spec.strides), to_string(spec.dilations),
                     to_string(spec.pads_begin), to_string(spec.pads_end));
}

void check_case(const Case& c, bool depthwise, const shim::Kernels& kernels, std::size_t number, std::mt19937& random) {
  SCOPED_TRACE(describe(c.spec));
  const std::int64_t count = num_elements(c.spec.output);
  const Elements x = random_elements(num_elements(c.spec.input), c.spec.operands, false, random);
  const Elements w = random_elements(num_elements(c.spec.weights), c.spec.operands, false, random);
  const Elements bias = random_elements(c.spec.output[1], DataType::kFloat32, false, random);
  const Elements residual = random_elements(count, c.spec.stored, false, random);
  const auto guarded = [](const Elements& from) {
    auto buffer = std::make_unique<shim::GuardedBuffer>(from.bytes.size(), 16, 0);
    std::memcpy(buffer->data(), from.bytes.data(), from.bytes.size());
    return buffer;
  };
  const auto gx = guarded(x), gw = guarded(depthwise ? for_generated_kernel(c.spec, w) : w), gb = guarded(bias),
             gr = guarded(residual);
  const shim::GuardedBuffer y(static_cast<std::size_t>(count) * size_of(c.spec.stored), 16, 0xff);
  const shim::GuardedBuffer sums(static_cast<std::size_t>(count) * 4, 16, 0xff);
  ASSERT_EQ(kernels.run(number, {gx->data(), gw->data(), gb->data(), gr->data(), y.data(), sums.data()}), "");
  Elements rounded_x = x, rounded_w = w;
  if (c.spec.tf32)
    for (Elements* e : {&rounded_x, &rounded_w})
      for (double& v : e->values) v = round_to_tf32(static_cast<float>(v));
  const Sums want = direct(c.spec, rounded_x, rounded_w);
  std::vector<std::int64_t> at(c.spec.output.size(), 0);
  const std::vector<std::int64_t> strides = row_major_strides(c.spec.output);
  do {
    const auto where = static_cast<std::size_t>(channels_last(c.spec.output, at));
    std::int64_t row_major = 0;
    for (std::size_t i = 0; i < at.size(); ++i) row_major += strides[i] * at[i];
    const float sum = element(sums.data(), static_cast<std::size_t>(row_major), DataType::kFloat32);
    ASSERT_TRUE(matches(sum, want.sum[where], want.magnitude[where],
                        c.spec.operands == DataType::kInt8 ? DataType::kInt8 : DataType::kFloat32))
        << sum << " for " << want.sum[where] << " at " << to_string(at);
    const double b = bias.values[static_cast<std::size_t>(at[1])], r = residual.values[where];
    const double all = std::max(0.0, want.sum[where] + b + r);
    ASSERT_TRUE(matches(element(y.data(), where, c.spec.stored), all,
                        want.magnitude[where] + std::fabs(b) + std::fabs(r), c.spec.stored))
        << element(y.data(), where, c.spec.stored) << " for " << all << " at " << to_string(at);
  } while (next_index(c.spec.output, at));
}

TEST(ConvolutionSource, IsTheDefinition) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no compiler";
  const std::uint32_t start = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", start));
  std::mt19937 random(start);
  std::vector<Case> cases;
  std::vector<KernelSource> sources;
  std::vector<bool> depthwise;
  for (int i = 0; i < 40; ++i) {
    cases.push_back(random_case(random));
    // Every form of a kernel, and the tiles of large convolutions, for small ones too.
    const Case& c = cases.back();
    const ConvolutionCode code(c.spec, c.program, c.loads, c.outputs);
    const std::int64_t busy_threads = i % 2 == 0 ? kBusyThreads : 1;
    depthwise.push_back(has_depthwise_source(c.spec) && i % 8 != 0);
    sources.push_back(depthwise.back() ? depthwise_source(code, busy_threads) : tiled_source(code, busy_threads));
  }
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  for (std::size_t i = 0; i < cases.size() && !HasFatalFailure(); ++i)
    check_case(cases[i], depthwise[i], kernels, i, random);
}

TEST(ConvolutionSource, CompilesForEveryArchitecture) {
  try {
    nvrtc_version();
  } catch (const Error& missing) {
    GTEST_SKIP() << missing.what();
  }
  const std::uint32_t start = sweeps::seed();
  SCOPED_TRACE(fmt::format("ULPSCOPE_TEST_SEED={}", start));
  std::mt19937 random(start);
  const char* const architectures[] = {"sm_80", "sm_90", "sm_120"};
  for (int i = 0; i < 9; ++i) {
    const Case c = random_case(random);
    EXPECT_NO_THROW(compile(convolution_source(c.spec, c.program, c.loads, c.outputs).source, architectures[i % 3]))
        << describe(c.spec);
  }
}

}  // namespace
}  // namespace ulpscope::cuda
