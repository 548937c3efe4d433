// Products of few rows by weights of a few bits each, on the fake GPU: the bits of what the weights stand for, for
// every format, and sums that are near those of the plain backend.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"

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

}  // namespace
}  // namespace ulpscope::cuda::fake
