// Layers that choose among elements, put them elsewhere, say something of each or run along an axis, and Einsum:
// lowered for a GPU without the CPU, and the same elements as the reference kernels give.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/lowered_networks.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;
using Ints = std::vector<std::int64_t>;

/// A network in float32, float16 and in mixed types; `host`: the steps that the CPU has in each.
class OnDevice : public ::testing::Test {
 protected:
  void expect(Net& net, std::int64_t host = 0, Match match = Match::kBits) {
    Network& network = net.finish();
    const auto add = [&](const char* what, const BuildOptions& options) {
      const std::string name = fmt::format("{} in {}", network.name, what);
      all_.add(name, network, net.inputs(), options, match);
      EXPECT_EQ(all_.host_steps(), host) << name;
    };
    add("fp32", options_of({}, Fusion::kFull));
    add("fp16, unfused", options_of({Precision::kFP16}, Fusion::kNone));
    add("bf16", options_of({Precision::kBF16}, Fusion::kFull));
    add("mixed types", mixed(network, 5, Fusion::kFull));
  }
  void TearDown() override {
    if (!all_.run()) GTEST_SKIP() << "no compiler";
  }
  Net& net(const std::string& name) {
    nets_.push_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(nets_.size()) + 1));
    return *nets_.back();
  }

 private:
  std::vector<std::unique_ptr<Net>> nets_;
  Comparison all_;
};

using CudaSelection = OnDevice;

TEST_F(CudaSelection, Pads) {
  for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
    Net& n = net(fmt::format("pads of mode {}", mode));
    const auto x = n.input("x", {2, 3, 5, 8});
    const auto last = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{0, 2, 3, 1})});
    const auto pad = [&](const std::string& of, const Ints& pads) {
      n.output(n.add("Pad", {of, n.integers(pads)}, {A("mode", mode)}, 19));
    };
    pad(x, {0, 0, 0, 0, 0, 0, 0, 0});
    pad(x, {0, 0, 1, 2, 0, 0, 3, 1});
    pad(x, {1, 2, 0, 0, 0, 1, 0, 0});     // The innermost dimension as it was.
    pad(x, {0, -1, 2, -3, 0, 0, -1, 4});  // Cropped, too.
    pad(x, {0, 0, 9, 0, 0, 0, 0, 17});    // More than there is.
    pad(last, {0, 2, 1, 0, 0, 1, 2, 0});
    pad(last, {0, 0, 0, 1, 0, 0, 0, 0});
    expect(n);
  }
  Net& n = net("values and centers");
  const auto x = n.input("x", {2, 5, 8});
  for (const float value : {1.0f, -3.4e38f, 0.1f, -0.0f, INFINITY})
    n.output(n.add("Pad", {x, n.integers({1, 0, 0, 0, 2, 0}), n.scalar(value)}));
  n.output(n.add("Pad", {x, n.integers({1, 2}), n.scalar(-2), n.integers({-2})}, {}, 18));
  n.output(n.add("CenterCropPad", {x, n.integers({4, 4, 11})}, {}, 18));
  n.output(n.add("CenterCropPad", {x, n.integers({2, 8})}, {A("axes", Ints{1, 2})}, 18));
  n.output(n.add("Where", {n.add("Less", {x, n.scalar(0)}), x, n.add("Pad", {x, n.integers({0, 0, 0, 0, 0, 0})})}));
  expect(n);
}

TEST_F(CudaSelection, Scatters) {
  Net& n = net("scatters");
  const auto x = n.input("x", {4, 5, 6}), u = n.input("u", {2, 5, 6}), v = n.input("v", {2, 3, 4});
  const auto indices = [&](const Shape& shape, const Ints& values) {
    return n.weight(Tensor::of<std::int64_t>(shape, std::span<const std::int64_t>(values)));
  };
  n.output(n.add("ScatterND", {x, indices({2, 1}, {3, -4}), u}));
  n.output(n.add("ScatterND", {x, indices({2, 1}, {1, 1}), u}));  // The later one wins.
  n.output(n.add("ScatterND", {n.add("Neg", {x}), indices({1, 2}, {2, -1}), n.add("Relu", {n.input("w", {1, 6})})}));
  n.output(n.add("ScatterND", {n.weight({4, 5, 6}), indices({2, 1}, {0, 2}), u}));
  Ints places;
  for (std::int64_t i = 0; i < 24; ++i) places.push_back(i % 4 - 2);
  n.output(n.add("ScatterElements", {x, indices({2, 3, 4}, places), v}, {A("axis", 1)}));
  n.output(n.add("ScatterElements", {x, indices({2, 3, 4}, places), n.weight({2, 3, 4})}, {A("axis", -1)}));
  n.output(n.add("TensorScatter", {x, n.input("new", {4, 2, 6}), n.integers({0, 3, 1, 2})}, {}, 24));
  for (const int upper : {0, 1})
    for (const std::int64_t k : {-7, -2, 0, 1, 9})
      n.output(n.add("Trilu", {x, n.weight(Tensor::of<std::int64_t>({}, {k}))}, {A("upper", upper)}));
  expect(n);
}

TEST_F(CudaSelection, GathersByIndicesOfTheCaller) {
  Net& n = net("gathers");
  const auto x = n.input("x", {4, 5, 6});
  const auto of = [&](const char* name, const Shape& shape, const Ints& values) {
    return n.input(name, Tensor::of<std::int64_t>(shape, std::span<const std::int64_t>(values)));
  };
  const auto t = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{2, 0, 1})});
  n.output(n.add("GatherND", {x, of("rows", {2, 1}, {3, -4})}));
  n.output(n.add("GatherND", {t, of("pairs", {3, 1, 2}, {5, 0, -6, 3, 2, -1})}));
  n.output(n.add("GatherND", {x, of("triples", {2, 3}, {0, 0, 0, 3, -5, 5})}));
  n.output(n.add("GatherND", {x, of("batched", {4, 2, 1}, {0, 1, 2, 3, 4, -1, -2, -3})}, {A("batch_dims", 1)}));
  n.output(n.add("GatherND", {n.weight({7, 3}), of("table", {2, 2, 1}, {6, 0, -1, 3})}));
  n.output(n.add("GatherElements", {t, of("elements", {2, 3, 4}, Ints(24, 1))}, {A("axis", 0)}));
  n.output(n.add("GatherElements", {x, of("others", {4, 5, 2}, Ints(40, -6))}, {A("axis", 2)}));
  expect(n, 7);
}

TEST_F(CudaSelection, Conditions) {
  Net& n = net("conditions");
  const float inf = INFINITY, nan = NAN;
  const auto x = n.input("x", Tensor::of<float>({2, 4}, {1, -1, inf, -inf, nan, 0, -0.0f, 0.3333f}));
  const auto y = n.input("y", Tensor::of<float>({4}, {1, 0, inf, nan}));
  std::vector<std::string> bools;
  for (const char* op : {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
    for (const auto& other : {y, n.scalar(0.3333f)}) n.output(bools.emplace_back(n.add(op, {x, other}, {}, 17)));
  for (const int positive : {0, 1})
    for (const int negative : {0, 1})
      n.output(bools.emplace_back(
          n.add("IsInf", {x}, {A("detect_positive", positive), A("detect_negative", negative)}, 20)));
  n.output(n.add("IsNaN", {x}, {}, 20));
  const auto p = n.add("Softmax", {x});
  n.output(n.add("Where", {n.add("IsNaN", {p}, {}, 20), n.scalar(0), p}));
  for (const char* op : {"And", "Or", "Xor"}) n.output(n.add(op, {bools[0], n.add("Not", {bools[2]})}));
  expect(n);
}

TEST_F(CudaSelection, RunningSums) {
  Net& n = net("running sums");
  const auto x = n.input("x", {3, 17, 5}), i = n.weight(Tensor::of<std::int64_t>({}, {1}));
  const auto t = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{2, 0, 1})});
  for (const int exclusive : {0, 1})
    for (const int reverse : {0, 1}) {
      const std::vector<A> attributes{A("exclusive", exclusive), A("reverse", reverse)};
      for (const std::int64_t axis : {0, 1, -1})
        n.output(n.add("CumSum", {x, n.weight(Tensor::of<std::int64_t>({}, {axis}))}, attributes));
      n.output(n.add("CumSum", {t, n.weight(Tensor::of<std::int32_t>({}, {2}))}, attributes));
      n.output(n.add("CumProd", {x, i}, attributes, 26));
    }
  expect(n);
}

/// Every equation of two operands of up to three indices each: all roles that an index can have, in all orders.
TEST_F(CudaSelection, Einsum) {
  const std::map<char, std::int64_t> sizes{{'a', 2}, {'b', 3}, {'c', 8}, {'d', 5}};
  const auto shape_of = [&](const std::string& term) {
    Shape shape;
    for (const char index : term) shape.push_back(sizes.at(index));
    return shape;
  };
  const char* const equations[] = {"ab,bc->ac",    "ab,bc->ca",     "ba,bc->ac",    "ab,cb->ac",      "abc,acd->abd",
                                   "abc,adc->abd", "abc,adc->adb",  "abc,bcd->abd", "abc,bd->acd",    "cab,acd->bad",
                                   "abc,cb->a",    "abc,abc->a",    "abc,ab->abc",  "a,b->ab",        "a,a->",
                                   "ab,ab->ab",    "abc,cd->abd",   "abc,dc->dab",  "bac,bdc->bad",   "abcd,dc->ab",
                                   "abc,abd->cd",  "abcd,abdc->ab", "abc,bac->bac", "...ab,bc->...ac"};
  for (const char* equation : equations) {
    Net& n = net(fmt::format("equation {}", equation));
    std::string text = equation;
    if (const auto dots = text.find("..."); dots != std::string::npos) text = "dab,bc->dac";
    const std::size_t comma = text.find(','), arrow = text.find("->");
    const auto x = n.input("x", shape_of(text.substr(0, comma)));
    const Shape second = shape_of(text.substr(comma + 1, arrow - comma - 1));
    for (const auto& y : {n.input("y", second), n.weight(second)}) {
      const auto product = n.add("Einsum", {x, y}, {A("equation", equation)});
      n.output(product);
      n.output(n.add("Relu", {n.add("Mul", {product, n.scalar(0.5f)})}));
    }
    expect(n, 0, Match::kRoundings);
  }
}

TEST_F(CudaSelection, OperandsThatAreRepeatedAlongEachOther) {
  Net& n = net("repeated");
  const auto x = n.input("x", {2, 1, 3, 4, 8}), y = n.input("y", {1, 5, 3, 8, 6}), z = n.input("z", {7, 1, 8, 2});
  n.output(n.add("MatMul", {x, y}));
  n.output(n.add("Relu", {n.add("Add", {n.add("MatMul", {x, z}), n.weight({2})})}));
  n.output(n.add("MatMul",
                 {n.add("Transpose", {n.add("Neg", {x})}, {A("perm", Ints{1, 0, 2, 3, 4})}), n.weight({2, 1, 8, 2})}));
  expect(n, 0, Match::kRoundings);
}

TEST_F(CudaSelection, EinsumThatIsReadRoundedAndUnrounded) {
  Net& n = net("both");
  const auto product = n.add("Einsum", {n.input("x", {2, 3, 4}), n.weight({4, 5})}, {A("equation", "abc,cd->bad")});
  n.output(n.add("Relu", {product}));
  n.output(n.add("Einsum", {product, n.weight({3, 2, 5})}, {A("equation", "bad,bad->ba")}));
  expect(n, 0, Match::kRoundings);
}

TEST_F(CudaSelection, ResizeToTheSameSize) {
  Net& n = net("resize");
  const auto x = n.input("x", {2, 3, 5, 4});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    n.output(n.add("Resize", {x, "", "", n.integers({2, 3, 5, 4})}, {A("mode", mode)}, 19));
    n.output(
        n.add("Relu", {n.add("Resize", {n.add("Neg", {x}), "", "", n.integers({2, 3, 5, 4})}, {A("mode", mode)}, 19)}));
  }
  expect(n);
}

/// Turned inputs of other types keep their order of memory when they are converted.
TEST_F(CudaSelection, TransposedInputs) {
  Net& n = net("turned");
  const auto x = n.input("x", {2, 3, 4, 8});
  const auto turned = n.add("Transpose", {x}, {A("perm", Ints{0, 2, 3, 1})});
  n.output(turned);
  n.output(n.add("Reshape", {turned, n.integers({2, 32, 3})}));
  n.output(n.add("MatMul", {turned, n.weight({3, 5})}));
  n.output(n.add("MatMul", {n.input("y", {2, 4, 6, 8}), turned}));
  expect(n, 0, Match::kRoundings);
}

/// Channels side by side: several in a thread.
TEST_F(CudaSelection, ResizeOfChannelsSideBySide) {
  for (const std::int64_t channels : {6, 8, 16}) {
    Net& n = net(fmt::format("{} channels", channels));
    const auto x = n.input("x", {2, 4, 3, channels});
    const auto last = n.add("Transpose", {n.add("Relu", {x})}, {A("perm", Ints{0, 3, 1, 2})});
    for (const char* mode : {"linear", "cubic"}) {
      const auto y = n.add("Resize", {last, "", "", n.integers({2, channels, 7, 5})}, {A("mode", mode)}, 19);
      n.output(y);
      n.output(n.add("Transpose", {n.add("Neg", {y})}, {A("perm", Ints{0, 2, 3, 1})}));
    }
    expect(n, 0, Match::kRoundings);
  }
}

/// Large ones are resized along one axis after the other, and leave the network as they are computed.
TEST_F(CudaSelection, ResizeToALargeSize) {
  Net& n = net("large");
  const auto x = n.input("x", {1, 4, 32, 64}), last = n.input("y", {1, 32, 48, 8});
  const auto y = n.add("Transpose", {n.add("Relu", {last})}, {A("perm", Ints{0, 3, 1, 2})});
  for (const char* mode : {"linear", "cubic"}) {
    n.output(n.add("Resize", {x, "", "", n.integers({1, 4, 256, 256})}, {A("mode", mode)}, 19));
    n.output(n.add("Resize", {y, "", "", n.integers({1, 8, 256, 192})}, {A("mode", mode)}, 19));
    n.output(n.add("Neg", {n.add("Resize", {y, "", "", n.integers({1, 8, 256, 192})}, {A("mode", mode)}, 19)}));
  }
  expect(n, 0, Match::kRoundings);
}

}  // namespace
}  // namespace ulpscope::cuda::fake
