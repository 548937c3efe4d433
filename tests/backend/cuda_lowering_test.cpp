// Products of matrices, blocks of networks and random networks, lowered for a GPU, run on the fake one and compared
// with the plain backend.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"
#include "engine/random_network.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

TEST(CudaLowering, ProductsOfMatrices) {
  Nets nets;
  {
    Net& n = nets.net("bias, relu and residual");
    const auto x = n.input("x", {2, 5, 33}), r = n.input("r", {2, 5, 17});
    const auto y = n.add("Add", {n.add("MatMul", {x, n.weight({33, 17})}), n.weight({17})});
    n.output(n.add("Relu", {n.add("Add", {y, r})}));
    n.output(n.add("Gelu", {y}, {}, 20));
  }
  {
    // Columns that are computed for a multiple of 8, by themselves and with all that may ride on them.
    Net& n = nets.net("an odd number of columns");
    const auto x = n.input("x", {2, 3, 12}), r = n.input("r", {2, 3, 301});
    const auto turned = n.add("Transpose", {x}, {A("perm", std::vector<std::int64_t>{1, 0, 2})});
    const auto y = n.add("MatMul", {x, n.weight({12, 301})});
    n.output(y);
    n.output(n.add("Relu", {n.add("Add", {n.add("MatMul", {x, n.weight({12, 259})}), n.weight({259})})}));
    n.output(n.add("Add", {n.add("MatMul", {x, n.weight({12, 301})}), r}));
    n.output(n.add("Softmax", {n.add("MatMul", {turned, n.weight({12, 301})})}));
    n.output(n.add("Gelu", {n.add("MatMul", {turned, n.weight({12, 301})})}, {}, 20));
  }
  {
    Net& n = nets.net("products with programs behind them");
    const auto x = n.input("x", {3, 40, 64}), r = n.input("r", {3, 40, 24}), s = n.input("s", {40, 3, 24});
    const auto turned = n.add("Transpose", {x}, {A("perm", Ints{1, 0, 2})});
    const auto y = n.add("Add", {n.add("MatMul", {x, n.weight({64, 24})}), n.weight({24})});
    n.output(n.add("Mul", {n.add("Sigmoid", {y}), n.add("Tanh", {r})}));
    n.output(n.add("Mul", {n.add("MatMul", {turned, n.weight({64, 24})}), s}));
    n.output(n.add("Gelu",
                   {n.add("Gemm", {n.add("Reshape", {x, n.integers({120, 64})}), n.weight({64, 8}), n.weight({8})},
                          {A("alpha", 0.5)})},
                   {}, 20));
  }
  {
    // Matrices of one tensor: neighbors, one of another type or with more behind it among them, odd ones, Gemm.
    Net& n = nets.net("products of one tensor");
    const auto x = n.input("x", {6, 24});
    for (const std::int64_t columns : {16, 8, 5, 24, 8})
      n.output(n.add("Add", {n.add("MatMul", {x, n.weight({24, columns})}), n.weight({columns})}));
    n.output(n.add("Gelu", {n.add("MatMul", {x, n.weight({24, 16})})}, {}, 20));
    n.output(n.add("Gemm", {x, n.weight({8, 24}), n.weight({8})}, {A("transB", 1)}));
    n.output(n.add("Gemm", {x, n.weight({24, 8})}, {A("alpha", 0.5)}));
    n.output(n.add("MatMul", {x, n.weight({24, 32})}));
  }
  for (const bool turned : {false, true}) {
    Net& n = nets.net(turned ? "Gemm, transposed" : "Gemm");
    const auto a = turned ? n.input("a", {10, 7}) : n.input("a", {7, 10});
    const auto b = turned ? n.weight({12, 10}) : n.input("b", {10, 12});
    const Ints shapes[] = {{12}, {7, 1}, {}, {7, 12}};
    for (const Ints& c : shapes)
      n.output(n.add("Gemm", {a, b, n.weight(c)},
                     {A("transA", turned), A("transB", turned), A("alpha", c.empty() ? 0.5 : 1.0),
                      A("beta", c.size() == 2 ? 2.0 : 1.0)}));
    n.output(n.add("Relu", {n.add("Gemm", {a, b}, {A("transA", turned), A("transB", turned)})}));
  }
  {
    Net& n = nets.net("batches");
    const auto a = n.input("a", {2, 3, 4, 5}), b = n.input("b", {2, 3, 5, 6}), c = n.input("c", {1, 3, 5, 6});
    n.output(n.add("MatMul", {a, b}));
    n.output(n.add("MatMul", {a, c}));
    n.output(n.add("MatMul", {n.add("Transpose", {b}, {A("perm", Ints{0, 1, 3, 2})}),
                              n.add("Transpose", {a}, {A("perm", Ints{0, 1, 3, 2})})}));
    n.output(n.add("MatMul", {a, n.weight({2, 3, 5, 2})}));
    n.output(n.add("MatMul", {n.weight({3, 4}), a}));
  }
  {
    Net& n = nets.net("vectors");
    const auto x = n.input("x", {3, 5}), v = n.input("v", {5});
    n.output(n.add("MatMul", {x, v}));
    n.output(n.add("MatMul", {v, n.weight({5, 3})}));
    n.output(n.add("MatMul", {v, v}));
  }
  {
    Net& n = nets.net("strided views");
    const auto x = n.input("x", {2, 3, 4, 8});
    const auto t = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{0, 2, 1, 3})});
    n.output(n.add("MatMul", {t, n.weight({8, 8})}));
    n.output(n.add("MatMul", {n.add("Reshape", {t, n.integers({2, 4, 24})}), n.weight({24, 5})}));
    n.output(
        n.add("MatMul", {n.add("Slice", {x, n.integers({1}), n.integers({7}), n.integers({3})}), n.weight({6, 3})}));
    n.output(n.add("MatMul", {n.add("Slice", {x, n.integers({3}), n.integers({-5}), n.integers({2}), n.integers({-1})}),
                              n.weight({8, 3})}));
  }
  expect_same(nets.all());
}

TEST(CudaLowering, ProductsOfOneTensorShareTheirWeightsAmongAssignments) {
  Net n("query, key and value");
  const auto x = n.input("x", {4, 24});
  constexpr std::int64_t kColumns[] = {16, 8, 24};
  std::vector<std::string> made;
  for (const std::int64_t columns : kColumns) made.push_back(n.add("MatMul", {x, n.weight({24, columns})}));
  for (const std::string& each : made) n.output(each);
  Network& network = n.finish();
  const auto spec = specialize(network, {{4, 24}});
  const IdMap<LayerId, GraphFunction> subgraphs(network.layers.size());
  BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
  options.constraints = ConstraintMode::kObey;
  FakeDevice device;
  WeightCache weights;
  for (unsigned chosen = 0; chosen < 8; ++chosen) {
    unsigned product = 0;
    for (Layer& layer : network.layers)
      layer.precision = (chosen >> product++ & 1U) != 0 ? DataType::kFloat16 : DataType::kFloat32;
    const Assignment assignment = assign_precisions(*spec, options);
    const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));
    const Steps steps = lower(*spec, schedule, weights, subgraphs, device);
    // Neighbors of one type are one product.
    const auto bit = [&](unsigned i) { return chosen >> i & 1U; };
    const auto runs = 1 + (bit(0) != bit(1)) + (bit(1) != bit(2));
    EXPECT_EQ(std::ranges::count_if(steps.steps,
                                    [](const Step& step) { return std::holds_alternative<ProductStep>(step.work); }),
              runs)
        << chosen;
  }
  EXPECT_EQ(device.constant_bytes(), 24 * (16 + 8 + 24) * (sizeof(float) + sizeof(std::uint16_t)));
}

TEST(CudaLowering, MatricesThatTwoPrecisionsReadAreThereOncePerPrecision) {
  Net n("twins");
  const auto x = n.input("x", {4, 24});
  const auto w = n.weight({24, 16}), v = n.weight({24, 8});
  for (int twin = 0; twin < 2; ++twin)
    for (const auto& weight : {w, v}) n.output(n.add("MatMul", {x, weight}));
  Network& network = n.finish();
  for (const LayerId id : network.layers.ids())
    network.layer(id).precision = id.index() < 2 ? DataType::kFloat32 : DataType::kFloat16;
  BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
  options.constraints = ConstraintMode::kObey;
  FakeDevice device;
  EXPECT_EQ(count_steps<ProductStep>(network, {{4, 24}}, options, device), 2);
  EXPECT_EQ(device.constant_bytes(), 24 * (16 + 8) * (sizeof(float) + sizeof(std::uint16_t)));
}

/// Programs read operands in whatever type they are stored; products need theirs in one.
TEST(CudaLowering, ProductsAloneHaveStepsThatConvert) {
  Comparison all;
  Nets nets;
  for (const DataType relu : {DataType::kFloat16, DataType::kFloat32}) {
    Net& n = nets.net(fmt::format("Relu in {}", name_of(relu)));
    const auto x = n.add("Relu", {n.input("x", {3, 16})});
    n.output(n.add("Softmax", {n.add("MatMul", {x, n.weight({16, 8})})}));
    Network& network = n.finish();
    for (Layer& layer : network.layers)
      layer.precision = layer.op->name == "MatMul" ? DataType::kFloat16
                        : layer.op->name == "Relu" ? relu
                                                   : DataType::kFloat32;
    BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
    options.constraints = ConstraintMode::kObey;
    all.add(network.name, network, n.inputs(), options, Match::kRoundings);
    EXPECT_EQ(all.converting_steps(), relu == DataType::kFloat32 ? 1 : 0) << network.name;
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

/// Attention by the rule of flash attention that no kernel has as a whole: heads are too large, or layers follow.
TEST(CudaLowering, ExponentialsAndTheSumsOfTheirRows) {
  Nets nets;
  for (const std::int64_t size : {3, 264}) {
    Net& n = nets.net(fmt::format("flash attention with values of {}", size));
    const auto q = n.input("q", {2, 2, 6, 8}), k = n.input("k", {2, 2, 8, 5}), v = n.input("v", {2, 2, 5, size});
    const auto scores = n.add("Mul", {n.add("MatMul", {q, k}), n.scalar(0.7f)});
    const auto y = n.add("MatMul", {n.add("Softmax", {scores}, {A("axis", -1)}), v});
    n.output(size == 3 ? n.add("Relu", {n.add("Mul", {y, n.scalar(-1.5f)})}) : y);
  }
  Comparison all;
  for (const auto& net : nets.all()) {
    Network& network = net->finish();
    for (const Precision precision : {Precision::kFP16, Precision::kBF16, Precision::kTF32}) {
      BuildOptions options = options_of({precision}, Fusion::kFull);
      options.attention = AttentionRule::kFlash;
      all.add(fmt::format("{} in {}", network.name, name_of(precision)), network, net->inputs(), options,
              Match::kRoundings);
    }
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaLowering, Blocks) {
  Nets nets;
  for (const int fused : {0, 1}) {
    Net& n = nets.net(fused != 0 ? "attention, one product for q, k, v" : "attention");
    const auto x = n.input("x", {2, 6, 16}), mask = n.input("mask", {2, 1, 1, 6});
    std::vector<std::string> qkv;
    if (fused != 0)
      qkv = n.add_many("Split", {n.add("Add", {n.add("MatMul", {x, n.weight({16, 48}, -0.3f, 0.3f)}), n.weight({48})})},
                       3, {A("axis", -1)}, 13);
    else
      for (int i = 0; i < 3; ++i)
        qkv.push_back(n.add("Add", {n.add("MatMul", {x, n.weight({16, 16}, -0.3f, 0.3f)}), n.weight({16})}));
    for (std::size_t i = 0; i < 3; ++i)
      qkv[i] = n.add("Transpose", {n.add("Reshape", {qkv[i], n.integers({0, 0, 2, 8})})},
                     {A("perm", i == 1 ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3})});
    const auto scores = n.add("Mul", {n.add("MatMul", {qkv[0], qkv[1]}), n.scalar(0.35f)});
    const auto p = n.add("Softmax", {n.add("Add", {scores, mask})}, {A("axis", -1)});
    const auto o = n.add("Transpose", {n.add("MatMul", {p, qkv[2]})}, {A("perm", Ints{0, 2, 1, 3})});
    const auto y =
        n.add("Add", {n.add("MatMul", {n.add("Reshape", {o, n.integers({0, 0, 16})}), n.weight({16, 16})}), x});
    n.output(n.add("LayerNormalization", {y, n.weight({16}), n.weight({16})}));
  }
  {
    Net& n = nets.net("normalization");
    const auto x = n.input("x", {2, 4, 3, 5}), z = n.input("z", {3, 20});
    n.output(n.add("InstanceNormalization", {x, n.weight({4}), n.weight({4})}));
    n.output(n.add("Relu", {n.add("BatchNormalization",
                                  {x, n.weight({4}, 0.5, 1.5), n.weight({4}), n.weight({4}), n.weight({4}, 0.5, 2)})}));
    n.output(n.add("LayerNormalization", {x, n.weight({3, 5}), n.weight({3, 5})}, {A("axis", 2)}));
    const auto centered = n.add("Sub", {z, n.add("ReduceMean", {z}, {A("axes", Ints{-1})})});
    const auto variance = n.add("ReduceMean", {n.add("Mul", {centered, centered})}, {A("axes", Ints{-1})});
    const auto scaled = n.add("Div", {centered, n.add("Sqrt", {n.add("Add", {variance, n.scalar(1e-3f)})})});
    n.output(n.add("Add", {n.add("Mul", {scaled, n.weight({20})}), n.weight({20})}));
    const auto groups = n.add("InstanceNormalization",
                              {n.add("Reshape", {x, n.integers({0, 2, -1})}), n.weight(Tensor::of<float>({2}, {1, 1})),
                               n.weight(Tensor::of<float>({2}, {0, 0}))});
    n.output(n.add("Mul", {n.add("Reshape", {groups, n.integers({2, 4, 3, 5})}), n.weight({4, 1, 1})}));
  }
  {
    Net& n = nets.net("residual block");
    const auto x = n.input("x", {2, 8, 6, 5});
    const auto conv = [&](const std::string& of) {
      return n.add("BatchNormalization",
                   {n.add("Conv", {of, n.weight({8, 8, 3, 3}, -0.3f, 0.3f)}, {A("pads", Ints{1, 1, 1, 1})}),
                    n.weight({8}, 0.5, 1.5), n.weight({8}), n.weight({8}), n.weight({8}, 0.5, 2)});
    };
    const auto y = n.add("Relu", {n.add("Add", {conv(n.add("Relu", {conv(x)})), x})});
    n.output(y);
    n.output(n.add("Gemm", {n.add("Flatten", {n.add("GlobalAveragePool", {y})}), n.weight({10, 8}), n.weight({10})},
                   {A("transB", 1)}));
  }
  {
    Net& n = nets.net("nothing in it");
    const auto x = n.input("x", {0, 4}), z = n.input("z", {3, 4});
    n.output(n.add("Add", {n.add("MatMul", {x, n.weight({4, 5})}), n.weight({5})}));
    n.output(n.add("Relu", {x}));
    n.output(n.add("Concat", {n.add("Tanh", {x}), z}, {A("axis", 0)}));
    n.output(n.add("ReduceSum", {n.add("Exp", {x}), n.integers({0})}));
    n.output(n.add("MatMul", {n.add("Transpose", {x}, {A("perm", Ints{1, 0})}), x}));
    n.output(n.add("Transpose", {x}, {A("perm", Ints{1, 0})}));
  }
  expect_same(nets.all());
}

TEST(CudaLowering, CopiesThatMoveAreStepsOfWhoeverPutTheElementsThere) {
  Net net("heads side by side");
  const auto heads = net.add("MatMul", {net.input("p", {1, 3, 8, 8}), net.input("v", {1, 3, 8, 16})});
  const auto turned = net.add("Transpose", {heads}, {A("perm", Ints{0, 2, 1, 3})});
  net.output(net.add("MatMul", {net.add("Reshape", {turned, net.integers({1, 8, 48})}), net.weight({48, 16})}));
  const Network& network = net.finish();
  FakeDevice device;
  const Steps steps =
      lowered(network, {{1, 3, 8, 8}, {1, 3, 8, 16}}, options_of({Precision::kFP16}, Fusion::kNone), device);
  std::vector<std::string> kernels;
  for (const Step& step : steps.steps)
    if (std::holds_alternative<KernelStep>(step.work) && !step.converts && step.layer != kNone)
      kernels.push_back(network.layer(step.layer).name);
  EXPECT_EQ(kernels, std::vector<std::string>{"MatMul0"});
}

TEST(CudaLowering, RandomNetworks) {
  const std::uint32_t start = sweeps::seed();
  const int count = sweeps::count(12);
  Comparison all;
  std::vector<std::unique_ptr<testing::RandomNetwork>> networks;
  for (int i = 0; i < count; ++i) {
    const auto seed = start + static_cast<std::uint32_t>(i);
    auto& made = *networks.emplace_back(std::make_unique<testing::RandomNetwork>(seed));
    const Fusion fusion = static_cast<Fusion>(i % 3);
    const BuildOptions options = i % 4 == 0   ? options_of({Precision::kFP16}, fusion)
                                 : i % 4 == 1 ? options_of({}, fusion)
                                 : i % 4 == 2 ? options_of({Precision::kBF16}, fusion)
                                              : mixed(made.network(), seed, fusion);
    all.add(fmt::format("seed {}, {}", seed, i % 4), made.network(), made.inputs(), options, Match::kRoundings,
            {.convolutions = i % 5 != 0, .steps = i % 5 != 1});
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

}  // namespace
}  // namespace ulpscope::cuda::fake
