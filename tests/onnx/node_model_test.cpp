#include "onnx/node_model.h"

#include <gmock/gmock.h>

#include "onnx/import.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

Layer layer_of(const char* op, std::vector<TensorId> outputs) {
  Layer layer;
  layer.name = "layer";
  layer.op = op_registry().find("", op);
  layer.opset = 17;
  layer.outputs = std::move(outputs);
  return layer;
}

/// The importer, which other tests judge, reads what was written.
TEST(NodeModelTest, TheImporterReadsEveryKindOfAttribute) {
  Layer layer = layer_of("Conv", {TensorId(3)});
  layer.attributes.set("group", std::int64_t{2});
  layer.attributes.set("ratio", 0.1f);
  layer.attributes.set("auto_pad", std::string("VALID"));
  layer.attributes.set("strides", std::vector<std::int64_t>{2, 3});
  layer.attributes.set("scales", std::vector<float>{0.5f, -2});
  layer.attributes.set("words", std::vector<std::string>{"a", ""});
  layer.attributes.set("none", std::vector<std::int64_t>{});
  layer.attributes.set("value", Tensor::of<double>({2, 1}, {1.5, -3}));
  const std::vector<std::optional<NodeInput>> inputs{NodeInput{DataType::kFloat32, Shape{1, 4, 8, 8}, {}},
                                                     NodeInput{DataType::kFloat32, {}, {}}, std::nullopt};
  const std::string bytes = node_model(layer, inputs);
  const auto network = import_onnx(std::as_bytes(std::span(bytes)), "node", op_registry());
  ASSERT_EQ(network->layers.size(), 1u);
  const Layer& read = network->layer(LayerId(0));
  EXPECT_EQ(read.op, layer.op);
  EXPECT_EQ(read.opset, 17);
  EXPECT_EQ(read.attributes.integer("group", 0), 2);
  EXPECT_EQ(read.attributes.real("ratio", 0), 0.1f);
  EXPECT_EQ(read.attributes.text("auto_pad", ""), "VALID");
  EXPECT_EQ(read.attributes.ints("strides"), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(read.attributes.reals("scales"), (std::vector<float>{0.5f, -2}));
  EXPECT_EQ(read.attributes.texts("words"), (std::vector<std::string>{"a", ""}));
  EXPECT_TRUE(read.attributes.has("none"));
  EXPECT_TRUE(read.attributes.ints("none", {7}).empty());
  const Tensor value = read.attributes.required_tensor("value");
  EXPECT_EQ(value.shape(), (Shape{2, 1}));
  EXPECT_THAT(value.values<double>(), ::testing::ElementsAre(1.5, -3));
  ASSERT_EQ(network->inputs.size(), 2u);
  EXPECT_EQ(network->tensor(network->inputs[0]).name, "i0");
  EXPECT_EQ(network->tensor(network->inputs[0]).shape, (Shape{1, 4, 8, 8}));
  EXPECT_FALSE(network->tensor(network->inputs[1]).shape);
  EXPECT_EQ(network->tensor(network->outputs.at(0)).name, "o0");
}

TEST(NodeModelTest, AbsentInputsAndOutputsKeepTheirPlaces) {
  const Layer layer = layer_of("LSTM", {kNone, TensorId(1), kNone});
  std::vector<std::optional<NodeInput>> inputs(6);
  for (const int i : {0, 1, 2, 5}) inputs[i] = NodeInput{DataType::kFloat32, {}, {}};
  const std::string bytes = node_model(layer, inputs);
  const auto network = import_onnx(std::as_bytes(std::span(bytes)), "node", op_registry());
  const Layer& read = network->layer(LayerId(0));
  EXPECT_EQ(read.input(3), kNone);
  EXPECT_EQ(network->tensor(read.input(5)).name, "i5");
  // An output that nobody wants ahead of one that somebody wants is computed, but no output of the model.
  EXPECT_EQ(network->tensor(read.output(0)).name, "o0");
  EXPECT_EQ(network->tensor(read.output(1)).name, "o1");
  EXPECT_EQ(read.output(2), kNone);
  EXPECT_EQ(network->outputs, std::vector<TensorId>{read.output(1)});
}

TEST(NodeModelTest, GraphsAreRefused) {
  Layer layer = layer_of("If", {TensorId(0)});
  layer.attributes.set("then_branch", Subgraph{std::make_shared<Network>(), {}});
  try {
    node_model(layer, std::vector<std::optional<NodeInput>>{NodeInput{DataType::kBool, Shape{}, {}}});
    FAIL() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("attribute 'then_branch' is a graph"));
  }
}

}  // namespace
}  // namespace ulpscope
