// Products of few rows by weights of a few bits each, on the fake GPU: the bits of what the weights stand for, for
// every format, and sums that are near those of the plain backend.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "backend/cuda/narrow_source.h"
#include "backend/cuda_elements.h"
#include "backend/cuda_shim.h"
#include "backend/lowered_networks.h"
#include "formats/numeric_format.h"
#include "formats/rounding.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

int narrow_kernels(const Steps& steps) {
  int count = 0;
  for (const Step& step : steps.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step.work))
      count += kernel->source->source.find("weights_of(") != std::string::npos;
  return count;
}

TEST(CudaNarrowProducts, OfEveryFormat) {
  Comparison all;
  std::vector<std::unique_ptr<Net>> nets;
  for (const Precision precision :
       {Precision::kINT4, Precision::kINT4Block64, Precision::kINT4Block32, Precision::kINT8Weights,
        Precision::kFP8Weights, Precision::kNVFP4Weights, Precision::kMXFP4Weights, Precision::kMXFP8Weights})
    for (const Precision beside : {Precision::kFP16, Precision::kBF16})
      for (const std::int64_t rows : {1, 3, 8, 9}) {
        const bool turned = rows == 3;
        nets.push_back(std::make_unique<Net>(fmt::format("{} {} rows {}", name_of(precision), name_of(beside), rows),
                                             static_cast<std::uint32_t>(rows)));
        Net& n = *nets.back();
        const auto w = n.weight(turned ? Shape{40, 256} : Shape{256, 40});
        const auto y = n.add("Gemm", {n.input("x", {rows, 256}), w, n.weight({40})}, {A("transB", turned ? 1 : 0)});
        n.output(n.add("Mul", {n.add("Sigmoid", {y}), n.input("z", {rows, 40})}));
        BuildOptions options = options_of({beside}, Fusion::kFull);
        options.enabled.set(precision);
        const Network& network = n.finish();
        all.add(network.name, network, n.inputs(), options, Match::kRoundings);
        EXPECT_EQ(all.host_steps(), 0) << network.name;
        FakeDevice device;
        const Steps steps = lowered(network, {{rows, 256}, {rows, 40}}, options, device);
        EXPECT_EQ(narrow_kernels(steps), rows <= 8 ? 1 : 0) << network.name;
      }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

/// Large enough to stay as the file has them.
TEST(CudaNarrowProducts, OfTheFile) {
  constexpr std::int64_t kSum = 512, kColumns = 130;
  Comparison all;
  std::vector<std::unique_ptr<Net>> nets;
  for (const bool blocks : {false, true})
    for (const bool turned : {false, true}) {
      nets.push_back(
          std::make_unique<Net>(fmt::format("{} {}", blocks ? "blocks" : "columns", turned ? "turned" : "plain")));
      Net& n = *nets.back();
      Tensor codes(DataType::kInt8, turned ? Shape{kColumns, kSum} : Shape{kSum, kColumns});
      for (std::int64_t i = 0; i < codes.size(); ++i)
        codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(i * 7919 % 255 - 127);
      const Shape scales =
          blocks ? (turned ? Shape{kColumns, kSum / 32} : Shape{kSum / 32, kColumns}) : Shape{kColumns};
      // Along the sums, or along the columns.
      std::vector<A> attributes{A("axis", blocks == turned ? 1 : 0)};
      if (blocks) attributes.emplace_back("block_size", 32);
      const auto w = n.add("DequantizeLinear", {n.weight(codes), n.weight(scales, 0.001f, 0.01f)}, attributes, 21);
      const auto x = n.input("x", {2, 2, kSum});
      n.output(turned ? n.add("MatMul", {x, n.add("Transpose", {w}, {A("perm", Ints{1, 0})})})
                      : n.add("MatMul", {x, w}));
      BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
      const Network& network = n.finish();
      all.add(network.name, network, n.inputs(), options, Match::kRoundings);
      FakeDevice device;
      EXPECT_EQ(narrow_kernels(lowered(network, {{2, 2, kSum}}, options, device)), 1) << network.name;
    }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

struct Direct {
  NarrowProductSpec spec;
  NarrowWeights::Matrix matrix;
};

/// Every element of the format, and scales that float16 holds or not.
Direct direct(Format format, DataType type, bool half_scales, std::int64_t m, std::int64_t k, std::int64_t block) {
  constexpr std::int64_t kColumns = 19;
  Direct made{.spec = {.m = m, .n = kColumns, .k = k, .type = type, .format = format, .block = std::min(block, k)},
              .matrix = {Tensor(DataType::kFloat32, {kColumns, k}),
                         Tensor(DataType::kFloat32, {kColumns, (k + block - 1) / block})}};
  made.spec.half_scales = half_scales;
  const NumericFormat& f = format_of(format);
  for (std::int64_t i = 0; i < made.matrix.elements.size(); ++i) {
    const auto element = static_cast<float>(decode(f, static_cast<std::uint32_t>(i * 7919 % (1 << f.bits()))));
    made.matrix.elements.data<float>()[i] = std::isfinite(element) ? element : 0;
  }
  for (std::int64_t i = 0; i < made.matrix.scales.size(); ++i)
    made.matrix.scales.data<float>()[i] = static_cast<float>(i * 31 % 61 + 1) / (half_scales ? 4096.0f : 4097.0f);
  made.spec.program.domain = {m, kColumns};
  Program& program = made.spec.program.program;
  program.apply(Instruction::kCopy, program.load(0));
  made.spec.program.inputs = {{.type = DataType::kFloat32, .strides = {kColumns, 1}}};
  made.spec.program.outputs = {{.source = 1, .type = DataType::kFloat32, .strides = {kColumns, 1}}};
  return made;
}

/// Sums that end inside of a chunk, groups that do, one group, and scales beside elements in float16 or in float32.
TEST(CudaNarrowProducts, AreTheDefinition) {
  const std::string compiler = shim::compiler();
  if (compiler.empty()) GTEST_SKIP() << "no compiler";
  std::vector<Direct> cases;
  std::vector<KernelSource> sources;
  for (const Format format : {Format::kInt4, Format::kInt8, Format::kFloat8E4M3, Format::kFloat4E2M1})
    for (const DataType type : {DataType::kFloat16, DataType::kBFloat16})
      for (const bool half_scales : {false, true})
        for (const std::int64_t k : {48, 1024, 1200})
          for (const std::int64_t block : {16, 64, 4096}) {
            cases.push_back(direct(format, type, half_scales, 1 + k / 16 % 8, k, block));
            ASSERT_TRUE(has_narrow_source(cases.back().spec));
            sources.push_back(narrow_product_source(cases.back().spec));
          }
  const shim::Kernels kernels(sources, compiler);
  ASSERT_EQ(kernels.error(), "");
  std::mt19937 random(7);
  std::uniform_real_distribution<float> any(-2, 2);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [spec, matrix] = cases[i];
    SCOPED_TRACE(fmt::format("{} {} half scales {} {} x {} by blocks of {}", format_of(spec.format).name,
                             name_of(spec.type), spec.half_scales, spec.m, spec.k, spec.block));
    const auto guarded = [](const Tensor& from) {
      auto buffer = std::make_unique<shim::GuardedBuffer>(from.bytes(), 16, 0);
      std::memcpy(buffer->data(), from.raw(), from.bytes());
      return buffer;
    };
    Tensor x(DataType::kFloat32, {spec.m, spec.k});
    std::generate_n(x.data<float>(), x.size(), [&] { return round_value(any(random), rounding_of(spec.type)); });
    const shim::GuardedBuffer stored_x(static_cast<std::size_t>(x.size()) * 2, 16, 0);
    for (std::int64_t e = 0; e < x.size(); ++e) elements::write(spec.type, stored_x.data() + 2 * e, x.data<float>()[e]);
    const Tensor scales = packed_scales(spec, matrix);
    const auto size = size_of(scale_type(spec));
    const shim::GuardedBuffer stored_scales(static_cast<std::size_t>(scales.size()) * size, 16, 0);
    for (std::int64_t e = 0; e < scales.size(); ++e)
      elements::write(scale_type(spec), stored_scales.data() + e * size, scales.data<float>()[e]);
    const auto packed = guarded(packed_elements(spec, matrix));
    const shim::GuardedBuffer y(static_cast<std::size_t>(spec.m * spec.n) * 4, 16, 0xff);
    ASSERT_EQ(kernels.run(i, {stored_x.data(), packed->data(), stored_scales.data(), y.data()}), "");
    for (std::int64_t row = 0; row < spec.m; ++row)
      for (std::int64_t column = 0; column < spec.n; ++column) {
        double sum = 0, magnitude = 0;
        for (std::int64_t at = 0; at < spec.k; ++at) {
          const std::int64_t groups = matrix.scales.shape()[1];
          const float w = matrix.elements.data<float>()[column * spec.k + at] *
                          matrix.scales.data<float>()[column * groups + at / spec.block];
          const double product = double{x.data<float>()[row * spec.k + at]} * round_value(w, rounding_of(spec.type));
          sum += product, magnitude += std::fabs(product);
        }
        ASSERT_NEAR(elements::read(DataType::kFloat32, y.data() + 4 * (row * spec.n + column)), sum, 1e-6 * magnitude);
      }
  }
}

}  // namespace
}  // namespace ulpscope::cuda::fake
