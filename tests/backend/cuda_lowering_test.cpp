// Schedules lowered for a GPU, run on the fake one and compared with the plain backend.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/lowered_networks.h"
#include "engine/random_network.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

/// Every network in several types and fusion levels.
void expect_same(std::vector<std::unique_ptr<Net>>& nets, const Rules& rules = {}) {
  Comparison all;
  for (const auto& net : nets) {
    Network& network = net->finish();
    const auto cache = std::make_shared<WeightCache>();
    const auto add = [&](const char* what, const BuildOptions& options) {
      all.add(fmt::format("{} in {}", network.name, what), network, net->inputs(), options, Match::kRoundings, rules,
              cache);
    };
    add("fp32", options_of({}, Fusion::kFull));
    add("fp16, unfused", options_of({Precision::kFP16}, Fusion::kNone));
    add("fp16", options_of({Precision::kFP16}, Fusion::kFull));
    add("bf16", options_of({Precision::kBF16}, Fusion::kPointwise));
    add("tf32", options_of({Precision::kTF32}, Fusion::kPointwise));
    add("mixed types", mixed(network, 5, Fusion::kFull));
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

class Nets {
 public:
  Net& net(const std::string& name) {
    made_.push_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(made_.size()) + 1));
    return *made_.back();
  }
  std::vector<std::unique_ptr<Net>>& all() { return made_; }

 private:
  std::vector<std::unique_ptr<Net>> made_;
};

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

/// Sums of rows, and what else there may be, in one vector.
TEST(CudaLowering, PartsOfAConcatAreComputedWhereTheyBelong) {
  Nets nets;
  Net& n = nets.net("sums in a row");
  const auto x = n.input("x", {3, 4, 6}), y = n.input("y", {1, 5});
  const auto sums = [&](const std::string& of, const Ints& shape) {
    return n.add("Reshape", {n.add("ReduceSum", {of, n.integers({-1})}), n.integers(shape)});
  };
  const auto twice = sums(n.add("Mul", {x, x}), {-1});
  n.output(
      n.add("Concat", {sums(n.add("Abs", {x}), {-1}), sums(y, {-1}), twice, n.weight({7}), twice}, {A("axis", 0)}));
  const auto handed_out = sums(n.add("Exp", {x}), {1, 12});
  n.output(handed_out);
  n.output(n.add("Concat", {handed_out, sums(n.add("Neg", {x}), {1, 12}), y}, {A("axis", 1)}));
  expect_same(nets.all());
  // No copies but of what is no sum, of the second of two, and of what is handed out.
  Net small("two sums");
  const auto z = small.input("z", {5, 8});
  std::vector<std::string> parts;
  for (const char* op : {"Abs", "Neg", "Exp"})
    parts.push_back(small.add(
        "Reshape", {small.add("ReduceSum", {small.add(op, {z}), small.integers({-1})}), small.integers({-1})}));
  small.output(small.add("Concat", parts, {A("axis", 0)}));
  const Network& network = small.finish();
  FakeDevice device;
  EXPECT_EQ(count_steps<KernelStep>(network, {{5, 8}}, options_of({}, Fusion::kFull), device), 3);
}

TEST(CudaLowering, RowsAreCountedOnTheDevice) {
  Net n("counts");
  const auto x = n.input("x", {3, 4, 40}), y = n.add("Exp", {x});
  const auto counts = [&](const std::string& of) {
    const auto made = n.add("Identity", {of});
    Network& network = n.network();
    Layer& layer = network.layer(network.find_layer(made.substr(0, made.size() - 4)));
    layer.op = &ops::row_magnitudes();
    return made;
  };
  n.output(n.add("Concat",
                 {counts(x), counts(n.add("Mul", {y, y})), counts(n.add("Transpose", {y}, {A("perm", Ints{2, 0, 1})}))},
                 {A("axis", 0)}));
  n.output(counts(y));
  Comparison all;
  all.add("counts", n.finish(), n.inputs(), options_of({}, Fusion::kFull), Match::kRoundings);
  EXPECT_EQ(all.host_steps(), 0);
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

void add_convolutions(Net& n, const std::string& x, std::int64_t c) {
  const auto conv = [&](std::int64_t k, std::int64_t groups, const Ints& window,
                        std::vector<Net::Attribute> attributes) {
    Ints shape{k, c / groups};
    shape.insert(shape.end(), window.begin(), window.end());
    attributes.emplace_back("group", groups);
    return n.add("Conv", {x, n.weight(shape, -0.5, 0.5), n.weight({k})}, attributes);
  };
  const auto y = conv(6, 1, {3, 3}, {A("pads", Ints{1, 1, 1, 1})});
  n.output(n.add("Relu", {n.add("Add", {y, conv(6, 1, {1, 1}, {})})}));
  n.output(n.add("Mul", {y, n.add("Sigmoid", {y})}));
  n.output(conv(c, c, {3, 2}, {A("pads", Ints{2, 0, 1, 1}), A("strides", Ints{2, 1}), A("dilations", Ints{1, 2})}));
  const auto norm =
      n.add("BatchNormalization", {conv(8, 1, {2, 3}, {A("strides", Ints{1, 2})}), n.weight({8}, 0.5, 1.5),
                                   n.weight({8}), n.weight({8}), n.weight({8}, 0.5, 2)});
  n.output(n.add("Tanh", {norm}));
  n.output(n.add("GlobalAveragePool", {norm}));
  const auto transposed = [&](std::int64_t k, std::int64_t groups, std::vector<Net::Attribute> attributes) {
    attributes.emplace_back("group", groups);
    return n.add("ConvTranspose", {x, n.weight({c, k / groups, 3, 2}, -0.5, 0.5)}, attributes);
  };
  n.output(n.add("Relu", {transposed(5, 1, {A("strides", Ints{2, 3}), A("pads", Ints{1, 0, 0, 1})})}));
  n.output(transposed(c, c, {A("strides", Ints{2, 2}), A("output_padding", Ints{1, 1})}));
  n.output(transposed(4, 1, {A("pads", Ints{3, 0, 0, 0}), A("dilations", Ints{1, 2})}));
  const auto up = transposed(5, 1, {A("strides", Ints{3, 2})});
  n.output(n.add("Sigmoid", {up}));
  n.output(
      n.add("ConvTranspose", {n.add("Relu", {up}), n.weight({5, 3, 2, 2}), n.weight({3})}, {A("strides", Ints{2, 2})}));
}

TEST(CudaLowering, Convolutions) {
  for (const Rules& rules : {Rules{}, Rules{.steps = false}, Rules{.convolutions = false}, Rules{.products = false}}) {
    Nets nets;
    for (std::int64_t c : {3, 8}) {
      Net& n = nets.net(fmt::format("convolutions of {} channels, cuDNN {} {}, cuBLASLt {}", c, rules.convolutions,
                                    rules.steps, rules.products));
      add_convolutions(n, n.input("x", {2, c, 7, 6}), c);
    }
    Net& n = nets.net("other dimensions");
    const auto x = n.input("x", {2, 4, 9}), z = n.input("z", {1, 2, 4, 3, 5});
    n.output(n.add("Conv", {x, n.weight({6, 2, 3}), n.weight({6})}, {A("group", 2), A("pads", Ints{0, 2})}));
    n.output(n.add("ConvTranspose", {x, n.weight({4, 3, 4}), n.weight({3})}, {A("strides", Ints{3})}));
    n.output(n.add("Relu", {n.add("Conv", {z, n.weight({3, 2, 2, 2, 3})}, {A("pads", Ints{1, 0, 1, 0, 1, 0})})}));
    expect_same(nets.all(), rules);
  }
}

TEST(CudaLowering, PoolingAndReductions) {
  Nets nets;
  {
    Net& n = nets.net("pooling");
    const auto x = n.input("x", {2, 5, 9, 7});
    const auto last =
        n.add("Transpose", {n.add("Transpose", {x}, {A("perm", Ints{0, 2, 3, 1})})}, {A("perm", Ints{0, 3, 1, 2})});
    for (const char* op : {"MaxPool", "AveragePool"})
      for (const int ceil : {0, 1})
        n.output(n.add(op, {ceil == 0 ? x : n.add("Relu", {last})},
                       {A("kernel_shape", Ints{3, 2}), A("strides", Ints{2, 2}), A("pads", Ints{1, 0, 1, 1}),
                        A("ceil_mode", ceil)}));
    n.output(n.add("AveragePool", {x},
                   {A("kernel_shape", Ints{3, 3}), A("pads", Ints{1, 1, 1, 1}), A("count_include_pad", 1)}));
    n.output(n.add("GlobalMaxPool", {x}));
    n.output(n.add("GlobalAveragePool", {x}));
  }
  for (const int keep : {0, 1}) {
    Net& n = nets.net(fmt::format("reductions, keepdims {}", keep));
    const auto x = n.input("x", {3, 4, 5, 6});
    const auto t = n.add("Transpose", {x}, {A("perm", Ints{2, 0, 3, 1})});
    const Ints axes[] = {{0}, {1}, {0, 2}, {1, 2}, {2, 3}, {-1}};
    for (const Ints& a : axes) {
      n.output(n.add("ReduceMean", {a.size() == 1 ? x : t}, {A("axes", a), A("keepdims", keep)}));
      n.output(n.add("ReduceSum", {a.size() == 1 ? t : x, n.integers(a)}, {A("keepdims", keep)}));
    }
    for (const char* op : {"ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"})
      n.output(n.add(op, {t}, {A("axes", Ints{1}), A("keepdims", keep)}));
    n.output(n.add("ArgMax", {x}, {A("axis", 2), A("keepdims", keep)}));
    n.output(n.add("ReduceMean", {n.add("Exp", {x})}, {A("keepdims", keep)}));
  }
  {
    Net& n = nets.net("softmax");
    const auto x = n.input("x", {3, 4, 5});
    for (const int axis : {0, 1, 2}) n.output(n.add(axis == 1 ? "LogSoftmax" : "Softmax", {x}, {A("axis", axis)}));
    n.output(n.add("Softmax", {n.add("Transpose", {x}, {A("perm", Ints{0, 2, 1})})}, {A("axis", -1)}));
  }
  {
    // Few long rows, cut into pieces: sums side by side, and one that needs others.
    Net& n = nets.net("long rows");
    const auto x = n.input("x", {3, 4096}), y = n.input("y", {3, 4096}), last = n.integers({-1});
    const auto product = n.add("Mul", {x, y}), far = n.add("Sub", {x, n.add("ReduceMean", {x}, {A("axes", Ints{-1})})});
    for (const char* op : {"ReduceSum", "ReduceL1", "ReduceMax"})
      n.output(op == std::string("ReduceMax")
                   ? n.add(op, {product}, {A("axes", Ints{-1})})
                   : n.add(op, {product, last}, {}, op == std::string("ReduceL1") ? 18 : 17));
    n.output(n.add("ReduceMean", {n.add("Mul", {far, far})}, {A("axes", Ints{-1})}));
    n.output(n.add("Softmax", {far}, {A("axis", -1)}));
  }
  expect_same(nets.all());
}

TEST(CudaLowering, Movement) {
  Nets nets;
  {
    Net& n = nets.net("concatenation and slices");
    const auto x = n.input("x", {2, 4, 6}), z = n.input("z", {2, 4, 3});
    const auto t = n.add("Transpose", {n.add("Sigmoid", {x})}, {A("perm", Ints{0, 2, 1})});
    const auto u = n.add("Transpose", {z}, {A("perm", Ints{0, 2, 1})});
    n.output(n.add("Concat", {t, u, n.weight({2, 1, 4})}, {A("axis", 1)}));
    n.output(n.add("Relu", {n.add("Concat", {x, x, n.add("Relu", {z})}, {A("axis", -1)})}));
    n.output(n.add("Slice", {t, n.integers({5, -1}), n.integers({-10, 0}), n.integers({1, 2}), n.integers({-2, -1})}));
    const auto parts = n.add_many("Split", {x, n.integers({1, 2, 3})}, 3, {A("axis", 2)});
    n.output(n.add("Neg", {parts[0]}));
    n.output(parts[1]);
    n.output(n.add("MatMul", {parts[2], n.weight({3, 4})}));
    n.output(n.add("Reshape", {t, n.integers({-1, 3})}));
    n.output(n.add("Flatten", {n.add("Unsqueeze", {t, n.integers({0})})}, {A("axis", 2)}));
    n.output(n.add("Expand",
                   {n.add("Slice", {x, n.integers({0}), n.integers({1}), n.integers({1})}), n.integers({3, 2, 4, 6})}));
    n.output(n.add("Tile", {t, n.integers({1, 2, 1})}));
    for (const char* mode : {"constant", "reflect", "edge"})
      n.output(n.add("Pad", {x, n.integers({0, 1, 2, 0, 2, 1})}, {A("mode", mode)}));
    n.output(n.add("Pad", {x, n.integers({0, -1, 2, 0, 1, -1}), n.scalar(0.5)}));
  }
  {
    Net& n = nets.net("images");
    const auto x = n.input("x", {2, 8, 3, 4});
    n.output(n.add("DepthToSpace", {x}, {A("blocksize", 2)}));
    n.output(n.add("SpaceToDepth", {n.add("DepthToSpace", {x}, {A("blocksize", 2), A("mode", "CRD")})},
                   {A("blocksize", 2)}));
    const auto repeated = [&](float height, float width) {
      return n.add(
          "Resize", {x, "", n.weight(Tensor::of<float>({4}, {1, 1, height, width}))},
          {A("mode", "nearest"), A("coordinate_transformation_mode", "asymmetric"), A("nearest_mode", "floor")});
    };
    n.output(repeated(2, 3));
    n.output(n.add("Concat", {repeated(1, 2), n.input("y", {2, 3, 3, 8}), repeated(1, 2)}, {A("axis", 1)}));
    n.output(n.add("Conv", {repeated(1, 3), n.weight({4, 8, 2, 2})}));
    n.output(n.add("Resize", {x, "", n.weight(Tensor::of<float>({4}, {1, 1, 2, 2}))}, {A("mode", "linear")}));
  }
  {
    Net& n = nets.net("indices and conditions");
    const auto x = n.input("x", {5, 6}), i = n.input("i", Tensor::of<std::int64_t>({2, 3}, {0, -1, 4, 2, -5, 1}));
    const auto t = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{1, 0})});
    n.output(n.add("Gather", {x, i}));
    n.output(n.add("Gather", {t, i}, {A("axis", 1)}));
    n.output(n.add("Gather", {n.weight({7, 4}), i}));
    n.output(n.add("Relu", {n.add("Gather", {x, n.integers({3, -2, 0})}, {A("axis", 1)})}));
    n.output(n.add("Gather", {x, n.weight(Tensor::of<std::int64_t>({}, {2}))}, {A("axis", 1)}));
    const auto c = n.add("Greater", {x, n.scalar(0.25)});
    n.output(n.add("Where", {c, x, n.scalar(-3)}));
    n.output(n.add("Where", {c, n.add("Tanh", {x}), n.weight({6})}));
    n.output(n.add("Cast", {c}, {A("to", 1)}));
    n.output(n.add("Cast", {x}, {A("to", 6)}));
    n.output(n.add("Add", {n.add("Cast", {n.add("Cast", {x}, {A("to", 10)})}, {A("to", 1)}), x}));
    n.output(n.add("Cast", {n.add("Exp", {x})}, {A("to", 16)}));
    n.output(n.add("Cast", {i}, {A("to", 1)}));
    n.output(n.add("Not", {c}));
  }
  expect_same(nets.all());
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

/// As Paddle's exporter writes it: a region without elements is none.
TEST(CudaLowering, ResizeWithAnEmptyRegion) {
  Comparison all;
  Nets nets;
  for (const char* mode : {"nearest", "linear"}) {
    Net& n = nets.net(mode);
    const auto x = n.add("Relu", {n.input("x", {2, 3, 5, 4})});
    const std::vector<A> attributes{A("mode", mode), A("coordinate_transformation_mode", "asymmetric"),
                                    A("nearest_mode", "floor")};
    const auto scales = n.weight(Tensor::of<float>({4}, {1, 1, 2, 2}));
    n.output(n.add("Relu", {n.add("Resize", {x, n.weight(Ints{0}), scales}, attributes, 12)}));
    const BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
    all.add(mode, n.finish(), n.inputs(), options, Match::kRoundings);
    EXPECT_EQ(all.host_steps(), 0) << mode;
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

/// As in a feature pyramid: repeated elements are copied once, with channels innermost, as convolutions take them.
TEST(CudaLowering, RepeatedElementsKeepTheirOrder) {
  Net n("pyramid");
  const auto conv = [&](const std::string& of, std::int64_t c, const Ints& pads) {
    return n.add("Conv", {of, n.weight({8, c, 3, 3})}, {A("pads", pads)});
  };
  const auto x = n.input("x", {2, 8, 6, 5}), y = n.input("y", {2, 8, 12, 10}), z = n.input("z", {2, 8, 12, 10});
  const auto top = conv(x, 8, {1, 1, 1, 1}), side = conv(y, 8, {1, 1, 1, 1}), other = conv(z, 8, {1, 1, 1, 1});
  const auto up =
      n.add("Resize", {top, "", n.weight(Tensor::of<float>({4}, {1, 1, 2, 2}))},
            {A("mode", "nearest"), A("coordinate_transformation_mode", "asymmetric"), A("nearest_mode", "floor")});
  n.output(conv(n.add("Concat", {up, side, other}, {A("axis", 1)}), 24, {0, 0, 0, 0}));
  const Network& network = n.finish();
  FakeDevice device;
  // Three inputs, three parts, one output.
  EXPECT_EQ(count_steps<KernelStep>(network, {{2, 8, 6, 5}, {2, 8, 12, 10}, {2, 8, 12, 10}},
                                    options_of({}, Fusion::kFull), device),
            7);
}

TEST(CudaLowering, Resize) {
  Nets nets;
  Net& n = nets.net("resize");
  const auto x = n.input("x", {2, 3, 5, 4}), z = n.input("z", {3, 7});
  const auto last = n.add("Transpose", {n.add("Relu", {n.add("Transpose", {x}, {A("perm", Ints{0, 2, 3, 1})})})},
                          {A("perm", Ints{0, 3, 1, 2})});
  const auto resized = [&](const std::string& of, std::vector<float> scales, const Ints& sizes,
                           const std::vector<A>& attributes) {
    const auto count = static_cast<std::int64_t>(scales.size());
    const auto by = scales.empty() ? "" : n.weight(Tensor::of<float>({count}, std::span<const float>(scales)));
    n.output(n.add("Resize", {of, "", by, sizes.empty() ? "" : n.integers(sizes)}, attributes, 19));
  };
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* coordinates :
         {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"})
      resized(x, {1, 1, 2, 1.5f}, {}, {A("mode", mode), A("coordinate_transformation_mode", coordinates)});
    resized(last, {}, {2, 3, 9, 2}, {A("mode", mode)});
    resized(x, {}, {1, 3, 2, 3}, {A("mode", mode), A("antialias", 1)});
    resized(x, {0.7f, 2.5f}, {}, {A("mode", mode), A("axes", Ints{3, 1}), A("exclude_outside", 1)});
    resized(z, {1, 3}, {}, {A("mode", mode)});
  }
  n.output(n.add("Relu",
                 {n.add("Upsample", {x, n.weight(Tensor::of<float>({4}, {1, 1, 3, 2}))}, {A("mode", "linear")}, 9)}));
  expect_same(nets.all());
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
