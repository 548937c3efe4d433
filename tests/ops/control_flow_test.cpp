// If, Loop and Scan, with bodies made of a few layers.
#include <gtest/gtest.h>

#include "graph/network.h"
#include "ops/op_rows.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope::test::control_flow_rows {
namespace {

/// Builds a sub-graph by name; every layer has one output.
class Body {
 public:
  TensorId input(const std::string& name, DataType type, std::optional<Shape> shape = std::nullopt) {
    const TensorId id = network_->add_tensor({.name = name, .type = type, .shape = std::move(shape)});
    network_->inputs.push_back(id);
    return id;
  }
  TensorId constant(Tensor value) {
    return network_->add_tensor(
        {.name = "constant" + std::to_string(network_->tensors.size()), .value = std::move(value)});
  }
  TensorId layer(const std::string& op, std::vector<TensorId> inputs, std::optional<Shape> shape = std::nullopt) {
    Layer layer;
    layer.name = op + std::to_string(network_->layers.size());
    layer.op = op_registry().find("", op);
    layer.opset = 14;
    layer.inputs = std::move(inputs);
    const TensorId id = network_->add_tensor({.name = layer.name + "_out", .shape = std::move(shape)});
    layer.outputs = {id};
    network_->add_layer(std::move(layer));
    return id;
  }
  Subgraph finish(std::vector<TensorId> outputs, std::vector<int> captures = {}) {
    network_->outputs = std::move(outputs);
    return {network_, std::move(captures)};
  }

 private:
  std::shared_ptr<Network> network_ = std::make_shared<Network>();
};

/// captured `op` constant
Subgraph branch(const std::string& op, float value) {
  Body body;
  const TensorId x = body.input("x", DataType::kUndefined);
  return body.finish({body.layer(op, {x, body.constant(f32({}, {value}))})}, {1});
}

/// sum += i (as given by the layer), stacks the sum; stops when it reaches `limit`.
Subgraph counting(std::int64_t limit) {
  Body body;
  const TensorId i = body.input("i", DataType::kInt64, Shape{});
  body.input("condition", DataType::kBool, Shape{});
  const TensorId sum = body.input("sum", DataType::kInt64, Shape{1});
  const TensorId next = body.layer("Add", {sum, i}, Shape{1});
  const TensorId go_on = body.layer("Less", {body.layer("Squeeze", {next}), body.constant(i64({}, {limit}))});
  return body.finish({go_on, next, body.layer("Identity", {next}, Shape{1})});
}

/// state += entry; the output is the state.
Subgraph summing() {
  Body body;
  const TensorId state = body.input("state", DataType::kFloat32), entry = body.input("entry", DataType::kFloat32);
  const TensorId next = body.layer("Add", {state, entry});
  return body.finish({next, body.layer("Identity", {next})});
}

using Integers = std::vector<std::int64_t>;
const Attribute kOne = std::int64_t{1};
const Tensor f0 = f32({2}, {0, 0});

const AddRows rows({
    {"If",
     "then",
     13,
     {{"then_branch", branch("Add", 1)}, {"else_branch", branch("Mul", 10)}},
     {b8({}, {true}), f32({2}, {2, 3})},
     {f32({2}, {3, 4})}},
    {"If",
     "else",
     13,
     {{"then_branch", branch("Add", 1)}, {"else_branch", branch("Mul", 10)}},
     {b8({1}, {false}), f32({2}, {2, 3})},
     {f32({2}, {20, 30})}},
    {"Loop",
     "trip count",
     13,
     {{"body", counting(100)}},
     {i64({}, {4}), Tensor(), i64({1}, {1})},
     {i64({1}, {7}), i64({4, 1}, {1, 2, 4, 7})}},
    {"Loop",
     "condition",
     11,
     {{"body", counting(4)}},
     {Tensor(), b8({}, {true}), i64({1}, {1})},
     {i64({1}, {4}), i64({3, 1}, {1, 2, 4})}},
    {"Loop",
     "not even once",
     16,
     {{"body", counting(4)}},
     {i64({}, {9}), b8({}, {false}), i64({1}, {5})},
     {i64({1}, {5}), i64({0, 1}, {})}},
    {"Scan",
     "forward",
     9,
     {{"body", summing()}, {"num_scan_inputs", kOne}},
     {f0, f32({3, 2}, {1, 2, 3, 4, 5, 6})},
     {f32({2}, {9, 12}), f32({3, 2}, {1, 2, 4, 6, 9, 12})}},
    {"Scan",
     "backward along other axes",
     11,
     {{"body", summing()},
      {"num_scan_inputs", kOne},
      {"scan_input_axes", Integers{1}},
      {"scan_input_directions", Integers{1}},
      {"scan_output_axes", Integers{-1}},
      {"scan_output_directions", Integers{1}}},
     {f0, f32({2, 3}, {1, 3, 5, 2, 4, 6})},
     {f32({2}, {9, 12}), f32({2, 3}, {9, 8, 5, 12, 10, 6})}},
    {"Scan",
     "a batch with lengths",
     8,
     {{"body", summing()}, {"num_scan_inputs", kOne}},
     {i64({2}, {2, 1}), f32({2, 1}, {0, 10}), f32({2, 2, 1}, {1, 2, 3, 4})},
     {f32({2, 1}, {3, 13}), f32({2, 2, 1}, {1, 3, 13, 0})}},
    {"Scan",
     "a batch read backward",
     8,
     {{"body", summing()}, {"num_scan_inputs", kOne}, {"directions", Integers{1}}},
     {Tensor(), f32({1, 1}, {0}), f32({1, 2, 1}, {1, 2})},
     {f32({1, 1}, {3}), f32({1, 2, 1}, {2, 3})}},
});

TEST(ControlFlow, RefusesWhatDoesNotFit) {
  const Tensor x = f32({2}, {2, 3});
  const std::map<std::string, Attribute> branches{{"then_branch", branch("Add", 1)},
                                                  {"else_branch", branch("Mul", 10)}};
  EXPECT_THROW(run_row({"If", "condition", 13, branches, {b8({2}, {true, false}), x}, {x}}), Error);
  EXPECT_THROW(run_row({"If", "no branch", 13, {{"then_branch", branch("Add", 1)}}, {b8({}, {true}), x}, {x}}), Error);
  EXPECT_THROW(run_row({"If", "outputs", 13, branches, {b8({}, {true}), x}, {x, x}}), Error);
  EXPECT_THROW(run_row({"Loop", "body", 13, {{"body", branch("Add", 1)}}, {i64({}, {1}), x}, {x}}), Error);
  const std::map<std::string, Attribute> scan{{"body", summing()}, {"num_scan_inputs", std::int64_t{3}}};
  EXPECT_THROW(run_row({"Scan", "inputs", 9, scan, {x, f32({1, 2}, {0, 0})}, {x, x}}), Error);
}

}  // namespace
}  // namespace ulpscope::test::control_flow_rows
