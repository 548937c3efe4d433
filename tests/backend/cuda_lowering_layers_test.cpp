// Layers other than products of matrices, lowered for a GPU, run on the fake one and compared with the plain backend.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

/// Sums of rows, and what else there may be, in one vector.
TEST(CudaLoweringOfLayers, PartsOfAConcatAreComputedWhereTheyBelong) {
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

TEST(CudaLoweringOfLayers, RowsAreCountedOnTheDevice) {
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

TEST(CudaLoweringOfLayers, Convolutions) {
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

TEST(CudaLoweringOfLayers, GroupsOfManyTapsAreProducts) {
  Nets nets;
  Net& n = nets.net("groups of many taps");
  const auto x = n.input("x", {2, 32, 21}), z = n.input("z", {2, 16, 9, 11});
  n.output(n.add(
      "Relu", {n.add("Conv", {x, n.weight({16, 8, 33}), n.weight({16})}, {A("group", 4), A("pads", Ints{16, 17})})}));
  n.output(n.add("Conv",
                 {n.add("Transpose", {n.input("w", {2, 90, 16})}, {A("perm", Ints{0, 2, 1})}), n.weight({8, 8, 40})},
                 {A("group", 2), A("strides", Ints{3}), A("dilations", Ints{2})}));
  n.output(n.add("Conv", {z, n.weight({8, 8, 6, 6})},
                 {A("group", 2), A("pads", Ints{1, 0, 2, 3}), A("strides", Ints{2, 1}), A("dilations", Ints{1, 2})}));
  expect_same(nets.all(), {});
  FakeDevice device;
  int batches = 0;
  const Steps steps = lowered(n.finish(), {{2, 32, 21}, {2, 16, 9, 11}, {2, 90, 16}},
                              options_of({Precision::kFP16}, Fusion::kFull), device);
  for (const Step& step : steps.steps)
    if (const auto* product = std::get_if<ProductStep>(&step.work)) batches += product->spec.batch;
  EXPECT_EQ(batches, 4 + 2 + 2);
}

TEST(CudaLoweringOfLayers,
     ReluComesBehindABias) {  // cuDNN has but a slow plan in float32 for Relu alone.
  Net n("relu without a bias");
  n.output(n.add("Relu", {n.add("Conv", {n.input("x", {1, 8, 6, 6}), n.weight({4, 8, 3, 3})})}));
  FakeDevice device;
  const Steps steps = lowered(n.finish(), {{1, 8, 6, 6}}, options_of({}, Fusion::kFull), device);
  std::vector<ConvolutionStep::Kind> kinds;
  for (const Step& step : steps.steps)
    if (const auto* convolve = std::get_if<ConvolveStep>(&step.work))
      for (const ConvolutionStep& each : convolve->spec.steps) kinds.push_back(each.kind);
  EXPECT_EQ(kinds, (std::vector{ConvolutionStep::Kind::kBias, ConvolutionStep::Kind::kRelu}));
}

TEST(CudaLoweringOfLayers, PoolingAndReductions) {
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

TEST(CudaLoweringOfLayers, Movement) {
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

/// As Paddle's exporter writes it: a region without elements is none.
TEST(CudaLoweringOfLayers, ResizeWithAnEmptyRegion) {
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
TEST(CudaLoweringOfLayers, RepeatedElementsKeepTheirOrder) {
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

TEST(CudaLoweringOfLayers, Resize) {
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

}  // namespace
}  // namespace ulpscope::cuda::fake
