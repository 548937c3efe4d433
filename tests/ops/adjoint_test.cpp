#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>

#include "graph/evaluate.h"
#include "graph/network_builder.h"
#include "ops/adjoint_rows.h"
#include "ops/op_rows.h"
#include "ops/registry.h"

namespace ulpscope::test {
namespace {

std::vector<AdjointRow>& table() {
  static std::vector<AdjointRow> rows;
  return rows;
}

Tensor random_values(const Shape& shape, double low, double high, std::mt19937& generator) {
  Tensor result(DataType::kFloat64, shape);
  std::uniform_real_distribution<double> distribution(low, high);
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<double>()[i] = distribution(generator);
  return result;
}

std::vector<Shape> shapes_of(const std::vector<Tensor>& tensors) {
  std::vector<Shape> shapes;
  for (const Tensor& t : tensors) shapes.push_back(t.shape());
  return shapes;
}

double projected(const std::vector<Tensor>& outputs, const std::vector<Tensor>& seeds) {
  double sum = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    for (std::int64_t i = 0; seeds[o] && i < outputs[o].size(); ++i)
      sum += outputs[o].data<double>()[i] * seeds[o].data<double>()[i];
  return sum;
}

/// The value of every tensor of the network.
std::map<TensorId, Tensor> all_values(Network network, const std::vector<Tensor>& inputs) {
  std::map<TensorId, Tensor> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) values[network.inputs[i]] = inputs[i];
  network.outputs.clear();
  for (const Layer& l : network.layers)
    for (TensorId id : l.outputs)
      if (id != kNone) network.outputs.push_back(id);
  const std::vector<Tensor> outputs = evaluate(network, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) values[network.outputs[i]] = outputs[i];
  return values;
}

}  // namespace

AddAdjointRows::AddAdjointRows(std::vector<AdjointRow> rows) {
  table().insert(table().end(), rows.begin(), rows.end());
}

RowNetwork network_of(const AdjointRow& row, DataType varied) {
  RowNetwork made;
  Network& network = made.network;
  Layer layer;
  layer.name = "layer";
  layer.op = op_registry().find(row.domain, row.op);
  if (layer.op == nullptr) throw std::invalid_argument("there is no operator " + row.op);
  layer.opset = row.opset;
  for (const auto& [name, value] : row.attributes) layer.attributes.set(name, value);
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const AdjointInput& in = row.inputs[i];
    if (in.kind == AdjointInput::Kind::kAbsent) {
      layer.inputs.push_back(kNone);
      continue;
    }
    const bool is_varied = in.kind == AdjointInput::Kind::kVaried;
    TensorInfo info;
    info.name = "in" + std::to_string(i);
    info.type = is_varied ? varied : in.value.type();
    info.shape = is_varied ? in.shape : in.value.shape();
    if (in.kind == AdjointInput::Kind::kConstant) info.value = in.value;
    const TensorId id = network.add_tensor(std::move(info));
    layer.inputs.push_back(id);
    if (in.kind == AdjointInput::Kind::kConstant) continue;
    network.inputs.push_back(id);
    made.inputs.push_back(in);
    if (is_varied) made.varied.push_back(id);
  }
  for (int o = 0; o < row.outputs; ++o) {
    TensorInfo info;
    info.name = "out" + std::to_string(o);
    layer.outputs.push_back(network.add_tensor(std::move(info)));
  }
  network.outputs = layer.outputs;
  network.add_layer(std::move(layer));
  infer_types(network);
  return made;
}

void check_gradients(const Network& network, const std::vector<Tensor>& inputs, const std::vector<TensorId>& varied,
                     double tolerance) {
  std::mt19937 generator(7);
  const InferredNetwork inferred = infer(network, shapes_of(inputs));
  const AdjointNetwork adjoint =
      make_adjoint(network, inferred, op_registry(), varied, network.outputs, {.type = DataType::kFloat64});
  std::map<TensorId, Tensor> values = all_values(network, inputs);
  std::vector<Tensor> seeds, adjoint_inputs;
  for (std::size_t o = 0; o < network.outputs.size(); ++o)
    seeds.push_back(adjoint.seeds[o] == kNone ? Tensor()
                                              : random_values(values.at(network.outputs[o]).shape(), -1, 1, generator));
  for (TensorId id : adjoint.forward) adjoint_inputs.push_back(values.at(id));
  for (const Tensor& seed : seeds)
    if (seed) adjoint_inputs.push_back(seed);
  infer(adjoint.network, shapes_of(adjoint_inputs));
  const std::vector<Tensor> gradients = evaluate(adjoint.network, adjoint_inputs);
  for (std::size_t w = 0; w < varied.size(); ++w) {
    EXPECT_FALSE(adjoint.incomplete[w]) << "input " << w;
    const std::size_t at = static_cast<std::size_t>(std::find(network.inputs.begin(), network.inputs.end(), varied[w]) -
                                                    network.inputs.begin());
    ASSERT_NE(adjoint.output_of[w], kNone) << "input " << w << " has no gradient";
    const Tensor& gradient = gradients[static_cast<std::size_t>(adjoint.output_of[w])];
    ASSERT_EQ(gradient.shape(), inputs[at].shape());
    for (std::int64_t i = 0; i < gradient.size(); ++i) {
      std::vector<Tensor> moved = inputs;
      moved[at] = inputs[at].clone();
      double& x = moved[at].data<double>()[i];
      const double middle = x, step = 1e-5 * std::max(1.0, std::abs(middle));
      x = middle + step;
      const double above = projected(evaluate(network, moved), seeds);
      x = middle - step;
      const double below = projected(evaluate(network, moved), seeds);
      const double expected = (above - below) / (2 * step), actual = gradient.data<double>()[i];
      ASSERT_LE(std::abs(actual - expected), tolerance * (1 + std::abs(expected)))
          << "input " << w << ", element " << i << ": " << actual << " against " << expected;
    }
  }
}

namespace {

void check_row(const AdjointRow& row) {
  std::mt19937 generator(3);
  const RowNetwork made = network_of(row, DataType::kFloat64);
  std::vector<Tensor> inputs;
  for (const AdjointInput& in : made.inputs)
    inputs.push_back(in.kind == AdjointInput::Kind::kVaried ? random_values(in.shape, in.low, in.high, generator)
                                                            : in.value);
  check_gradients(made.network, inputs, made.varied);
}

TEST(Adjoint, EveryRowAgreesWithFiniteDifferences) {
  std::set<std::string> labels;
  for (const AdjointRow& row : table()) {
    SCOPED_TRACE(row.op + " " + row.label);
    EXPECT_TRUE(labels.insert(row.op + " " + row.label).second) << "this label exists already";
    try {
      check_row(row);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Adjoint, EveryAdjointHasARow) {
  std::set<std::pair<std::string, std::string>> rows;
  for (const AdjointRow& row : table()) rows.emplace(row.domain, row.op);
  for (const OpDef& op : op_registry().all())
    EXPECT_TRUE(op.adjoint == nullptr || rows.contains({std::string(op.domain), std::string(op.name)}))
        << op.name << " has an adjoint and no row";
}

using ulpscope::testing::NetworkBuilder;

struct Gradients {
  std::vector<TensorId> gradients;
  std::vector<char> incomplete;
  AdjointNetwork adjoint;
};

Gradients gradients_of(const Network& network, const std::vector<std::string>& wanted, const Shape& shape) {
  std::vector<TensorId> ids;
  for (const std::string& name : wanted) ids.push_back(network.find_tensor(name));
  AdjointNetwork adjoint = make_adjoint(network, infer(network, std::vector<Shape>(network.inputs.size(), shape)),
                                        op_registry(), ids, network.outputs);
  return {adjoint.gradients, adjoint.incomplete, std::move(adjoint)};
}

TEST(Adjoint, AddsUpTheGradientsOfAllReaders) {
  NetworkBuilder b;
  b.input("x", DataType::kFloat64);
  b.layer("Mul", {"x", "x"}, {"square"}, "square");
  b.layer("Sin", {"square"}, {"a"}, "a");
  b.layer("Add", {"a", "x"}, {"b"}, "b");
  b.layer("Mul", {"b", "square"}, {"y"}, "y");
  b.output("y");
  b.output("square");
  infer_types(b.network);
  check_gradients(b.network, {f64({3}, {0.3, -0.7, 1.1})}, b.network.inputs);
}

TEST(Adjoint, AProductWithOneZeroHasTheProductOfTheOthers) {
  NetworkBuilder b;
  b.input("x", DataType::kFloat64);
  b.layer("ReduceProd", {"x"}, {"y"}, "y");
  b.output("y");
  infer_types(b.network);
  check_gradients(b.network, {f64({3}, {0, -0.7, 1.1})}, b.network.inputs);
  check_gradients(b.network, {f64({3}, {0, 0, 1.1})}, b.network.inputs);
}

TEST(Adjoint, TellsWhereAPathHasNoDerivative) {
  NetworkBuilder b;
  b.input("x");
  b.layer("Exp", {"x"}, {"e"}, "e");
  b.layer("Round", {"e"}, {"r"}, "r");
  b.layer("Add", {"e", "r"}, {"s"}, "s");
  b.layer("Neg", {"s"}, {"y"}, "y");
  b.layer("Neg", {"x"}, {"unused"}, "unused");
  b.output("y");
  infer_types(b.network);
  const Gradients g = gradients_of(b.network, {"x", "e", "r", "s", "y", "unused"}, {2});
  EXPECT_EQ(g.incomplete, (std::vector<char>{1, 1, 0, 0, 0, 0}));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NE(g.gradients[i], kNone) << i;
  EXPECT_EQ(g.gradients[5], kNone);
}

TEST(Adjoint, StopsAtIntegersAndOnlyRoundings) {
  NetworkBuilder b;
  b.input("x");
  b.layer("Round", {"x"}, {"r"}, "r");
  b.layer("Exp", {"r"}, {"y"}, "y");
  b.layer("ArgMax", {"x"}, {"i"}, "i");
  b.output("y");
  b.output("i");
  infer_types(b.network);
  const Gradients g = gradients_of(b.network, {"x", "r"}, {2});
  EXPECT_EQ(g.gradients[0], kNone);
  EXPECT_NE(g.gradients[1], kNone);
  EXPECT_EQ(g.incomplete, (std::vector<char>{1, 0}));
  EXPECT_NE(g.adjoint.seeds[0], kNone);
  EXPECT_EQ(g.adjoint.seeds[1], kNone);
}

TEST(Adjoint, AConditionComputedFromAValueIsIncomplete) {
  NetworkBuilder b;
  b.input("x");
  b.constant("zero", Tensor::scalar(0.0f));
  b.layer("Exp", {"x"}, {"e"}, "e");
  b.layer("Greater", {"x", "zero"}, {"positive"}, "positive");
  b.layer("Where", {"positive", "e", "zero"}, {"y"}, "y");
  b.output("y");
  infer_types(b.network);
  const Gradients g = gradients_of(b.network, {"x", "e"}, {2});
  EXPECT_EQ(g.incomplete, (std::vector<char>{1, 0}));
  EXPECT_NE(g.gradients[0], kNone);
}

TEST(Adjoint, HoldsOnlyWhatIsNeeded) {
  NetworkBuilder b;
  b.input("x");
  b.layer("Exp", {"x"}, {"e"}, "e");
  b.layer("Sin", {"e"}, {"s"}, "s");
  b.layer("Neg", {"s"}, {"y"}, "y");
  b.output("y");
  infer_types(b.network);
  const Gradients g = gradients_of(b.network, {"y", "s"}, {2});
  EXPECT_TRUE(g.adjoint.forward.empty());
  ASSERT_EQ(g.adjoint.network.outputs.size(), 2u);  // the seed itself, and its negative
  EXPECT_EQ(g.adjoint.network.inputs, g.adjoint.seeds);
  const std::vector<Tensor> out = evaluate(g.adjoint.network, std::vector<Tensor>{f32({2}, {1, 2})});
  EXPECT_EQ(out[0].data<float>()[1], 2);
  EXPECT_EQ(out[1].data<float>()[1], -2);
}

TEST(Adjoint, RefusesTypesAndTensorsThatAreNone) {
  NetworkBuilder b;
  b.input("x");
  b.layer("Exp", {"x"}, {"y"}, "y");
  b.output("y");
  infer_types(b.network);
  const InferredNetwork inferred = infer(b.network, {{2}});
  const std::vector<TensorId> wrong{99};
  EXPECT_THROW(make_adjoint(b.network, inferred, op_registry(), wrong, b.network.outputs), std::exception);
  EXPECT_THROW(make_adjoint(b.network, inferred, op_registry(), b.network.inputs, b.network.outputs,
                            {.type = DataType::kFloat16}),
               std::exception);
}

}  // namespace
}  // namespace ulpscope::test
