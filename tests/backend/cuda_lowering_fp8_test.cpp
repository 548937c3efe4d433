// fp8 on the fake GPU: by its tensor cores for fp8, by those for float16 where it has none, and by generated kernels.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

class Fp8Cases {
 public:
  Net& net(const std::string& name) {
    nets_.push_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(nets_.size()) + 1));
    return *nets_.back();
  }
  /// What was made last, at every fusion level, stored in float32 and float16, with sums of every kind: near those of
  /// the plain backend, nothing of it on the CPU. So many of its products are fp8 for the library at most; those of
  /// attention are no more, once layers are fused beside float16.
  void check(const std::map<std::string, float>& scales, int by_library, int of_attention = 0) {
    Net& net = *nets_.back();
    const Network& network = net.finish();
    const auto cache = std::make_shared<WeightCache>();
    for (const Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull})
      for (const bool narrow : {false, true})
        for (const bool fp8 : {true, false}) {
          BuildOptions options = options_of({Precision::kFP8}, fusion);
          options.enabled.set(Precision::kFP16, narrow);
          options.scales = scales;
          const std::string name = fmt::format("{}, fusion {}{}{}", network.name, static_cast<int>(fusion),
                                               narrow ? ", fp16" : "", fp8 ? "" : ", no fp8");
          const Rules rules{.fp8 = fp8};
          all_.add(name, network, net.inputs(), options, Match::kRoundings, rules, fp8 ? cache : nullptr);
          EXPECT_EQ(all_.host_steps(), 0) << name;
          const int fused = narrow && fusion != Fusion::kNone ? of_attention : 0;
          EXPECT_EQ(products(DataType::kFloat8E4M3, network, net, options, rules), fp8 ? by_library - fused : 0)
              << name;
        }
  }
  bool run() { return all_.run(); }

  /// How many kernels with both products of an attention there are, everything else in float16.
  static int attentions(Net& net, std::map<std::string, float> scales, Accumulation accumulation) {
    BuildOptions options = options_of({Precision::kFP8, Precision::kFP16}, Fusion::kFull);
    options.scales = std::move(scales);
    options.accumulation = accumulation;
    std::vector<Shape> shapes;
    for (const Tensor& input : net.inputs()) shapes.push_back(input.shape());
    FakeDevice device(Rules{});
    int count = 0;
    for (const Step& step : lowered(net.finish(), shapes, options, device).steps)
      if (const auto* kernel = std::get_if<KernelStep>(&step.work))
        count += kernel->source->source.find("#define ELEMENTS_P true") != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  static int products(DataType type, const Network& network, const Net& net, const BuildOptions& options,
                      const Rules& rules) {
    std::vector<Shape> shapes;
    for (const Tensor& input : net.inputs()) shapes.push_back(input.shape());
    FakeDevice device(rules);
    int count = 0;
    for (const Step& step : lowered(network, shapes, options, device).steps) {
      const auto* both = std::get_if<ProductProgramStep>(&step.work);
      const auto* product = both != nullptr ? &both->product : std::get_if<ProductStep>(&step.work);
      count += product != nullptr && product->spec.operands == type ? 1 : 0;
    }
    return count;
  }

  std::vector<std::unique_ptr<Net>> nets_;
  Comparison all_;
};

TEST(CudaLoweringFp8, Products) {
  Fp8Cases cases;
  for (const Ints& mkn : {Ints{5, 32, 24}, Ints{16, 160, 64}, Ints{3, 20, 17}}) {
    Net& n = cases.net(fmt::format("MatMul {} with bias", ulpscope::to_string(mkn)));
    const auto x = n.input("x", {2, mkn[0], mkn[1]}, -6, 6);
    n.output(n.add("Relu", {n.add("Add", {n.weight({mkn[2]}), n.add("MatMul", {x, n.weight({mkn[1], mkn[2]})})})}));
    cases.check({{"x", 0.04f}}, mkn[1] % 16 == 0 ? 1 : 0);
  }
  for (const bool turned : {false, true}) {
    Net& n = cases.net("Gemm, a residual and an activation");
    const auto y = n.add("Gemm",
                         {n.input("x", turned ? Shape{48, 6} : Shape{6, 48}),
                          n.weight(turned ? Shape{32, 48} : Shape{48, 32}), n.weight({32})},
                         {A("transA", turned ? 1 : 0), A("transB", turned ? 1 : 0), A("alpha", turned ? 0.5 : 1.0)});
    n.output(n.add("Sigmoid", {n.add("Add", {y, n.input("r", {6, 32})})}));
    cases.check({{"x", 0.017f}}, 1);
  }
  add_projections(cases.net("projections"));
  cases.check({{"x", 0.03f}}, 3);
  {
    Net& n = cases.net("attention");
    const auto x = n.input("x", {2, 8, 16});
    const auto scores = n.add("MatMul", {x, n.add("Transpose", {x}, {A("perm", Ints{0, 2, 1})})});
    n.output(n.add("MatMul", {n.add("Softmax", {scores}), x}));
    cases.check({{"x", 0.03f}}, 0);
  }
  {
    Net& n = cases.net("batches");
    n.output(n.add("MatMul", {n.input("x", {3, 5, 64}), n.input("z", {3, 64, 32})}));
    cases.check({{"x", 0.017f}, {"z", 0.02f}}, 1);
  }
  {
    Net& n = cases.net("what is too large, and what is no number");
    Tensor x(DataType::kFloat32, {4, 32});
    for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 9 - 4) * 1e-3f;
    x.data<float>()[3] = 1e9f, x.data<float>()[40] = -INFINITY, x.data<float>()[70] = NAN;
    n.input("x", x);
    n.output(n.add("MatMul", {"x", n.weight({32, 16})}));
    cases.check({{"x", 0.5f}}, 1);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

/// As BertModel has it. What the elements are made of is stored in float16 by layers before.
std::map<std::string, float> add_attention(Net& n, bool nan_is_zero) {
  std::map<std::string, float> scales;
  std::vector<std::string> qkv;
  for (int i = 0; i < 3; ++i) {
    const auto x = n.add("Mul", {n.input(fmt::format("x{}", i), {2, 16, 32}), n.weight({32})});
    qkv.push_back(n.add("Transpose", {n.add("Reshape", {x, n.integers({0, 0, 2, 16})})},
                        {A("perm", i == 1 ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3})}));
    scales[x] = 0.01f * static_cast<float>(i + 1);
  }
  const auto scores = n.add("Mul", {n.add("MatMul", {qkv[0], qkv[1]}), n.scalar(0.35f)});
  auto p = n.add("Softmax", {n.add("Add", {scores, n.weight({2, 1, 1, 16})})}, {A("axis", -1)});
  scales[p] = 1.0f / 448;
  if (nan_is_zero) scales[p = n.add("Where", {n.add("IsNaN", {p}), n.scalar(0), p})] = 1.0f / 448;
  n.output(n.add("Transpose", {n.add("MatMul", {p, qkv[2]})}, {A("perm", Ints{0, 2, 1, 3})}));
  return scales;
}

TEST(CudaLoweringFp8, AttentionIsOneKernel) {
  Fp8Cases cases;
  for (const bool nan_is_zero : {false, true}) {
    const std::string name = fmt::format("attention {}", nan_is_zero);
    cases.check(add_attention(cases.net(name), nan_is_zero), 2, 2);
    const auto count = [&](Accumulation accumulation) {
      Net net(name);
      const auto scales = add_attention(net, nan_is_zero);
      return Fp8Cases::attentions(net, scales, accumulation);
    };
    EXPECT_EQ(count(Accumulation::kFP32), 1) << name;
    EXPECT_EQ(count(Accumulation::kHopperFast), 1) << name;
    EXPECT_EQ(count(Accumulation::kHopper), 0) << "sums in float32 are not these";
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringFp8, Convolutions) {
  Fp8Cases cases;
  for (const bool with_normalization : {false, true}) {
    Net& n = cases.net(fmt::format("Conv {}", with_normalization));
    const auto x = n.input("x", {1, 20, 6, 7});
    auto y = n.add("Conv", {x, n.weight({24, 20, 3, 3}), n.weight({24})}, {A("pads", Ints(4, 1))});
    if (with_normalization)
      y = n.add("BatchNormalization",
                {y, n.weight({24}, 0.5, 1.5), n.weight({24}), n.weight({24}), n.weight({24}, 0.5, 2)});
    n.output(n.add("Relu", {y}));
    cases.check({{"x", 0.05f}}, 0);
  }
  if (!cases.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLoweringFp8, FastAccumulationIsAskedFor) {
  Net n("accumulation");
  n.output(n.add("MatMul", {n.input("x", {16, 64}), n.weight({64, 32})}));
  const Network& network = n.finish();
  for (const Accumulation accumulation : {Accumulation::kFP32, Accumulation::kHopper, Accumulation::kHopperFast}) {
    BuildOptions options = options_of({Precision::kFP8}, Fusion::kFull);
    options.scales = {{"x", 0.02f}};
    options.accumulation = accumulation;
    FakeDevice device;
    const Steps steps = lowered(network, {{16, 64}}, options, device);
    int found = 0;
    for (const Step& step : steps.steps)
      if (const auto* product = std::get_if<ProductStep>(&step.work)) {
        ++found;
        EXPECT_EQ(product->spec.fast, accumulation == Accumulation::kHopperFast);
        EXPECT_EQ(product->spec.operands, DataType::kFloat8E4M3);
      }
    EXPECT_EQ(found, 1);
  }
}

}  // namespace
}  // namespace ulpscope::cuda::fake
