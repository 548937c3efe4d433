#include <gtest/gtest.h>

#include <random>
#include <set>

#include "graph/evaluate.h"
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
  Network network;
  std::vector<Tensor> inputs;
  std::vector<TensorId> varied;
  Layer layer;
  layer.name = "layer";
  layer.op = op_registry().find(row.domain, row.op);
  ASSERT_NE(layer.op, nullptr);
  layer.opset = row.opset;
  for (const auto& [name, value] : row.attributes) layer.attributes.set(name, value);
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const AdjointInput& in = row.inputs[i];
    if (in.kind == AdjointInput::Kind::kAbsent) {
      layer.inputs.push_back(kNone);
      continue;
    }
    TensorInfo info;
    info.name = "in" + std::to_string(i);
    Tensor value =
        in.kind == AdjointInput::Kind::kVaried ? random_values(in.shape, in.low, in.high, generator) : in.value;
    info.type = value.type();
    info.shape = value.shape();
    if (in.kind == AdjointInput::Kind::kConstant) info.value = value;
    const TensorId id = network.add_tensor(std::move(info));
    layer.inputs.push_back(id);
    if (in.kind == AdjointInput::Kind::kConstant) continue;
    network.inputs.push_back(id);
    inputs.push_back(value);
    if (in.kind == AdjointInput::Kind::kVaried) varied.push_back(id);
  }
  for (int o = 0; o < row.outputs; ++o) {
    TensorInfo info;
    info.name = "out" + std::to_string(o);
    layer.outputs.push_back(network.add_tensor(std::move(info)));
  }
  network.outputs = layer.outputs;
  network.add_layer(std::move(layer));
  infer_types(network);
  check_gradients(network, inputs, varied);
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
    if (op.adjoint != nullptr)
      EXPECT_TRUE(rows.contains({std::string(op.domain), std::string(op.name)})) << op.name << " has no row";
}

}  // namespace
}  // namespace ulpscope::test
