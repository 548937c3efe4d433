// Nodes, names, constants, inputs and outputs of imported networks.
#include "onnx/import.h"

#include <gmock/gmock.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;

TEST(Import, ReadsTheExampleWithItsSixLayers) {
  const auto network = needs_constraints().load();
  EXPECT_THAT(layer_names(*network), ElementsAre("I_rot90", "MatMul_0", "fp16_max", "Add", "Sub", "MatMul_1"));
  EXPECT_EQ(network->layers[LayerId(0)].op->name, "Constant");
  EXPECT_EQ(network->layers[LayerId(3)].opset, 17);
  EXPECT_THAT(network->layers[LayerId(3)].nodes, ElementsAre("Add"));
  EXPECT_EQ(network->tensor(network->find_tensor("add_out_1")).type, DataType::kFloat32);
  EXPECT_EQ(network->name, "g");
  EXPECT_EQ(network->source, "model.onnx");
  const auto y = first_output(*network, {Tensor::of<float>({1, 1, 2, 2}, {1, 2, 1.5f, 1.25f})});
  EXPECT_THAT(y, ElementsAre(1, 2, 1.5f, 1.25f));
}

TEST(Import, NamesUnnamedAndEquallyNamedNodes) {
  Model model;
  model.input("x", {2});
  model.node("Relu", {"x"}, {"a"});
  model.node("Relu", {"a"}, {"b"}, "same");
  model.node("Relu", {"b"}, {"c"}, "same");
  model.node("Relu", {"c"}, {"d"}, "other");
  model.node("Relu", {"d"}, {"e"}, "other");
  model.node("Relu", {"e"}, {"f"}, "same");
  model.output("f");
  const auto network = model.load();
  EXPECT_THAT(layer_names(*network), ElementsAre("node_of_a", "same", "same_0", "other", "other_1", "same_2"));
  EXPECT_THAT(network->layers[LayerId(2)].nodes, ElementsAre("same"));
}

TEST(Import, KeepsParametersAsWeightsUnlessTheyAreReadAsTensors) {
  Model model;
  model.input("x", {2, 3});
  *model.graph().add_initializer() = int64_tensor("shape", {2}, {3, 2});
  *model.graph().add_initializer() = int64_tensor("both", {1}, {6});
  *model.graph().add_initializer() = int64_tensor("unused", {1}, {6});
  model.node("Reshape", {"x", "shape"}, {"a"}, "first");
  model.node("Reshape", {"a", "both"}, {"y"}, "second");
  model.node("Add", {"both", "both"}, {"z"}, "add");
  model.output("y");
  model.output("z");
  const auto network = model.load();
  ASSERT_NE(op_registry().find("", "Reshape")->weights & 2u, 0u);
  EXPECT_THAT(layer_names(*network), ElementsAre("first", "both", "second", "add"));
  EXPECT_TRUE(network->tensor(network->find_tensor("shape")).value);
  EXPECT_EQ(network->tensor(network->find_tensor("shape")).producer, kNone);
  EXPECT_EQ(network->find_tensor("unused"), kNone);
}

TEST(Import, TakesInputsWithInitializersAsConstants) {
  Model model = needs_constraints();
  model.input("fp16_max", {1, 1, 1, 1});
  const auto network = model.load();
  ASSERT_EQ(network->inputs.size(), 1u);
  EXPECT_EQ(network->tensor(network->inputs[0]).name, "x");
}

TEST(Import, ReadsDimensions) {
  Model model = needs_constraints();
  auto* shape = model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->mutable_dim(0)->set_dim_param("batch");
  shape->mutable_dim(1)->clear_dim_value();
  const auto network = model.load();
  const TensorInfo& x = network->tensor(network->inputs[0]);
  EXPECT_EQ(*x.shape, (Shape{-1, -1, 2, 2}));
  EXPECT_THAT(x.dim_names, ElementsAre("batch", "", "", ""));
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  EXPECT_FALSE(model.load()->tensor(network->inputs[0]).shape.has_value());
}

TEST(Import, SortsNodesAndKeepsTheOrderOfThoseThatAreSorted) {
  Model model;
  model.input("x", {2});
  model.node("Relu", {"b"}, {"c"}, "third");
  model.node("Relu", {"x"}, {"a"}, "first");
  model.node("Relu", {"a"}, {"b"}, "second");
  model.node("Relu", {"x"}, {"d"}, "independent");
  model.output("c");
  EXPECT_THAT(layer_names(*model.load()), ElementsAre("first", "second", "third", "independent"));
}

TEST(Import, HandsOutInputsAndInitializersDirectly) {
  Model model;
  model.input("x", {2});
  *model.graph().add_initializer() = float_tensor("w", {2}, {3, 4});
  model.output("w");
  model.output("x");
  const auto network = model.load();
  const auto outputs = evaluate(*network, std::vector{Tensor::of<float>({2}, {1, 2})});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(3, 4));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(1, 2));
}

TEST(Import, ReadsEveryFormOfConstants) {
  Model model;
  const auto constant = [&](const std::string& name, const std::string& attribute,
                            onnx::AttributeProto::AttributeType type) -> onnx::AttributeProto& {
    model.output(name);
    return add_attribute(model.node("Constant", {}, {name}, name + "_node"), attribute, type);
  };
  *constant("t", "value", onnx::AttributeProto::TENSOR).mutable_t() = float_tensor("", {1, 2}, {5, 6});
  constant("f", "value_float", onnx::AttributeProto::FLOAT).set_f(1.5f);
  constant("i", "value_int", onnx::AttributeProto::INT).set_i(7);
  constant("fs", "value_floats", onnx::AttributeProto::FLOATS).add_floats(2.5f);
  auto& ints = constant("is", "value_ints", onnx::AttributeProto::INTS);
  ints.add_ints(8);
  ints.add_ints(9);
  const auto network = model.load();
  EXPECT_THAT(layer_names(*network), ElementsAre("t_node", "f_node", "i_node", "fs_node", "is_node"));
  const auto outputs = evaluate(*network, {});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(5, 6));
  EXPECT_EQ(outputs[0].shape(), (Shape{1, 2}));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(1.5f));
  EXPECT_EQ(outputs[1].shape(), Shape{});
  EXPECT_THAT(outputs[2].values<std::int64_t>(), ElementsAre(7));
  EXPECT_THAT(outputs[3].values<float>(), ElementsAre(2.5f));
  EXPECT_THAT(outputs[4].values<std::int64_t>(), ElementsAre(8, 9));
  EXPECT_EQ(outputs[4].shape(), Shape{2});
}

TEST(Import, TreatsBothNamesOfTheDefaultDomainAlike) {
  Model model;
  model.proto.clear_opset_import();
  model.import_opset("ai.onnx", 13);
  model.input("x", {2});
  model.node("Relu", {"x"}, {"y"}).set_domain("ai.onnx");
  model.output("y");
  EXPECT_EQ(model.load()->layers[LayerId(0)].opset, 13);
}

TEST(Import, KeepsAbsentInputsAndOutputs) {
  Model model;
  model.input("x", {2});
  *model.graph().add_initializer() = float_tensor("high", {}, {1});
  model.node("Clip", {"x", "", "high"}, {"y"});
  model.node("Dropout", {"y", "", ""}, {"z", ""});
  model.output("z");
  const auto network = model.load();
  const Layer& clip = network->layer(network->find_layer("node_of_y"));
  ASSERT_EQ(clip.inputs.size(), 3u);
  EXPECT_EQ(clip.inputs[1], kNone);
  const Layer& dropout = network->layer(network->find_layer("node_of_z"));
  EXPECT_EQ(dropout.inputs.size(), 1u);
  ASSERT_EQ(dropout.outputs.size(), 2u);
  EXPECT_EQ(dropout.outputs[1], kNone);
  EXPECT_THAT(first_output(*network, {Tensor::of<float>({2}, {-3, 3})}), ElementsAre(-3, 1));
}

}  // namespace
}  // namespace ulpscope::testing
