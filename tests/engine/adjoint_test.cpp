// Adjoint networks through the engine in float32, against the reference kernels in float64.
#include "graph/adjoint.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/assign.h"
#include "graph/evaluate.h"
#include "graph/network_builder.h"
#include "runtime/executable.h"

namespace ulpscope {
namespace {

using testing::NetworkBuilder;

class Values {
 public:
  Tensor operator()(const Shape& shape, double scale = 1) {
    Tensor result(DataType::kFloat64, shape);
    std::normal_distribution<double> distribution(0, scale);
    for (std::int64_t i = 0; i < result.size(); ++i) result.data<double>()[i] = distribution(generator_);
    return result;
  }

 private:
  std::mt19937 generator_{11};
};

/// Builds the same network with float32 or float64 constants.
struct Typed {
  NetworkBuilder b;
  DataType type;
  Values values;

  explicit Typed(DataType t) : type(t) {}
  void weight(const std::string& name, const Shape& shape, double scale) {
    b.weight(name, values(shape, scale).cast(DataType::kFloat32).cast(type));
  }
  void constant(const std::string& name, double value) {
    b.constant(name, Tensor::scalar(static_cast<float>(value)).cast(type));
  }
  void integers(const std::string& name, std::vector<std::int64_t> v) {
    b.weight(name, Tensor::of<std::int64_t>({static_cast<std::int64_t>(v.size())}, std::span<const std::int64_t>(v)));
  }
  void layer(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
             const std::map<std::string, Attribute>& attributes = {}) {
    Layer& l = b.layer(op, inputs, {output}, output);
    for (const auto& [name, value] : attributes) l.attributes.set(name, value);
  }
};

Network transformer_block(DataType type) {
  Typed t(type);
  t.b.input("x", type);
  t.integers("heads", {2, 12, 4, 8});
  t.integers("joined", {2, 12, 32});
  t.integers("last", {-1});
  const auto norm = [&](const std::string& in, const std::string& out) {
    t.layer("ReduceMean", {in}, out + ".mean", {{"axes", std::vector<std::int64_t>{-1}}});
    t.layer("Sub", {in, out + ".mean"}, out + ".centered");
    t.constant(out + ".two", 2);
    t.layer("Pow", {out + ".centered", out + ".two"}, out + ".square");
    t.layer("ReduceMean", {out + ".square"}, out + ".variance", {{"axes", std::vector<std::int64_t>{-1}}});
    t.constant(out + ".epsilon", 1e-5);
    t.layer("Add", {out + ".variance", out + ".epsilon"}, out + ".moved");
    t.layer("Sqrt", {out + ".moved"}, out + ".deviation");
    t.layer("Div", {out + ".centered", out + ".deviation"}, out + ".unit");
    t.weight(out + ".gamma", {32}, 1);
    t.layer("Mul", {out + ".unit", out + ".gamma"}, out);
  };
  norm("x", "n1");
  for (const std::string name : {"q", "k", "v"}) {
    t.weight(name + ".w", {32, 32}, 0.2);
    t.weight(name + ".b", {32}, 0.2);
    t.layer("MatMul", {"n1", name + ".w"}, name + ".product");
    t.layer("Add", {name + ".product", name + ".b"}, name + ".sum");
    t.layer("Reshape", {name + ".sum", "heads"}, name + ".split");
    t.layer("Transpose", {name + ".split"}, name,
            {{"perm", name == "k" ? std::vector<std::int64_t>{0, 2, 3, 1} : std::vector<std::int64_t>{0, 2, 1, 3}}});
  }
  t.layer("MatMul", {"q", "k"}, "scores");
  t.constant("root", 2.83);
  t.layer("Div", {"scores", "root"}, "scaled");
  t.layer("Softmax", {"scaled"}, "shares");
  t.layer("MatMul", {"shares", "v"}, "mixed");
  t.layer("Transpose", {"mixed"}, "back", {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  t.layer("Reshape", {"back", "joined"}, "flat");
  t.layer("Add", {"flat", "x"}, "residual");
  t.b.weight("n2.w", t.values({32}, 1).cast(type));
  t.layer("LayerNormalization", {"residual", "n2.w"}, "n2");
  t.weight("up", {32, 64}, 0.2);
  t.weight("down", {64, 32}, 0.2);
  t.layer("MatMul", {"n2", "up"}, "wide");
  t.constant("sqrt2", 1.41421356);
  t.constant("one", 1);
  t.layer("Div", {"wide", "sqrt2"}, "e.in");
  t.layer("Erf", {"e.in"}, "e");
  t.layer("Add", {"e", "one"}, "e.moved");
  t.layer("Mul", {"wide", "e.moved"}, "gelu");
  t.layer("MatMul", {"gelu", "down"}, "narrow");
  t.layer("Add", {"narrow", "residual"}, "y");
  t.b.output("y");
  infer_types(t.b.network);
  return std::move(t.b.network);
}

Network small_cnn(DataType type) {
  Typed t(type);
  using Ints = std::vector<std::int64_t>;
  t.b.input("x", type);
  const auto conv = [&](const std::string& in, const std::string& out, Shape w, Ints strides, Ints pads,
                        std::int64_t groups = 1) {
    t.weight(out + ".w", w, 0.3);
    t.weight(out + ".b", {w[0]}, 0.3);
    t.layer("Conv", {in, out + ".w", out + ".b"}, out, {{"strides", strides}, {"pads", pads}, {"group", groups}});
  };
  conv("x", "c1", {8, 3, 3, 3}, {2, 2}, {1, 1, 1, 1});
  for (const std::string p : {"scale", "shift", "mean"}) t.weight(p, {8}, 0.5);
  t.b.weight("variance", Tensor::of<float>({8}, {1, 2, 1.5f, 0.5f, 1, 2, 3, 1}).cast(type));
  t.layer("BatchNormalization", {"c1", "scale", "shift", "mean", "variance"}, "bn");
  t.layer("Relu", {"bn"}, "relu");
  conv("relu", "dw", {8, 1, 3, 3}, {1, 1}, {1, 1, 1, 1}, 8);
  t.layer("HardSwish", {"dw"}, "swish");
  conv("swish", "pw", {8, 8, 1, 1}, {1, 1}, {0, 0, 0, 0});
  t.layer("Add", {"pw", "relu"}, "residual");
  t.layer("GlobalAveragePool", {"residual"}, "pooled");
  conv("pooled", "gate.c", {8, 8, 1, 1}, {1, 1}, {0, 0, 0, 0});
  t.layer("HardSigmoid", {"gate.c"}, "gate");
  t.layer("Mul", {"residual", "gate"}, "gated");
  t.layer("MaxPool", {"gated"}, "small", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  t.layer("AveragePool", {"gated"}, "smooth", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  t.b.weight("scales", Tensor::of<float>({4}, {1, 1, 2, 2}));
  t.layer("Resize", {"small", "", "scales"}, "large",
          {{"coordinate_transformation_mode", std::string("asymmetric")}, {"nearest_mode", std::string("floor")}});
  t.layer("Resize", {"smooth", "", "scales"}, "soft", {{"mode", std::string("linear")}});
  t.layer("Concat", {"large", "soft"}, "both", {{"axis", std::int64_t{1}}});
  t.weight("up.w", {16, 3, 2, 2}, 0.3);
  t.layer("ConvTranspose", {"both", "up.w"}, "up", {{"strides", Ints{2, 2}}});
  t.layer("Sigmoid", {"up"}, "y");
  t.b.output("y");
  infer_types(t.b.network);
  return std::move(t.b.network);
}

/// Gradients of the output with respect to every float tensor that a layer computes.
void check(const Network& single, const Network& twice, const Shape& shape) {
  std::vector<TensorId> wanted;
  for (const Layer& l : twice.layers)
    if (l.op->kind != OpKind::kConstant) wanted.push_back(l.outputs[0]);
  Values values;
  const std::vector<Tensor> input{values(shape).cast(DataType::kFloat32).cast(DataType::kFloat64)};
  Network marked = twice;
  marked.outputs = wanted;
  const std::vector<Tensor> forward = evaluate(marked, input);
  const AdjointNetwork exact =
      make_adjoint(twice, infer(twice, {shape}), op_registry(), wanted, twice.outputs, {.type = DataType::kFloat64});
  const AdjointNetwork fast = make_adjoint(single, infer(single, {shape}), op_registry(), wanted, single.outputs);
  ASSERT_EQ(exact.forward, fast.forward);
  std::vector<Tensor> inputs, narrow;
  for (TensorId id : exact.forward) {
    const auto at = std::find(wanted.begin(), wanted.end(), id) - wanted.begin();
    inputs.push_back(id == twice.inputs[0] ? input[0] : forward[at]);
  }
  inputs.push_back(values(*infer(twice, {shape}).shapes[twice.outputs[0]]));
  std::vector<Shape> shapes;
  for (const Tensor& t : inputs) {
    narrow.push_back(t.cast(DataType::kFloat32));
    shapes.push_back(t.shape());
  }
  const std::vector<Tensor> expected = evaluate(exact.network, inputs);
  for (Fusion fusion : {Fusion::kNone, Fusion::kFull}) {
    BuildOptions options;
    options.fusion = fusion;
    const auto spec = specialize(fast.network, shapes);
    Executable executable(fast.network, assign_precisions(*spec, options), options, spec);
    const std::vector<Tensor> actual = executable.run(narrow);
    for (std::size_t w = 0; w < wanted.size(); ++w) {
      ASSERT_NE(fast.output_of[w], kNone) << twice.tensor(wanted[w]).name;
      EXPECT_FALSE(fast.incomplete[w]) << twice.tensor(wanted[w]).name;
      const Tensor& e = expected[exact.output_of[w]];
      const Tensor& a = actual[fast.output_of[w]];
      ASSERT_EQ(a.shape(), e.shape());
      double largest = 0, worst = 0;
      for (std::int64_t i = 0; i < e.size(); ++i) {
        largest = std::max(largest, std::abs(e.data<double>()[i]));
        worst = std::max(worst, std::abs(e.data<double>()[i] - static_cast<double>(a.data<float>()[i])));
      }
      EXPECT_LE(worst, 2e-5 * largest + 1e-12) << twice.tensor(wanted[w]).name;
    }
  }
}

TEST(Adjoint, OfATransformerBlockRunsInTheEngine) {
  check(transformer_block(DataType::kFloat32), transformer_block(DataType::kFloat64), {2, 12, 32});
}

TEST(Adjoint, OfASmallConvolutionalNetworkRunsInTheEngine) {
  check(small_cnn(DataType::kFloat32), small_cnn(DataType::kFloat64), {2, 3, 16, 16});
}

}  // namespace
}  // namespace ulpscope
