// If, Loop and functions.
#include <gmock/gmock.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using Attribute = onnx::AttributeProto;

onnx::GraphProto& graph_attribute(onnx::NodeProto& node, const std::string& name) {
  return *add_attribute(node, name, Attribute::GRAPH).mutable_g();
}

/// y = c ? x + w : relu(neg(x)); both branches take x from outside, w is an initializer of the outer graph.
Model choice() {
  Model model;
  model.input("c", {}, onnx::TensorProto::BOOL);
  model.input("x", {2});
  model.node("Neg", {"x"}, {"n"}, "negate");
  *model.graph().add_initializer() = float_tensor("w", {2}, {10, 20});
  onnx::NodeProto& node = model.node("If", {"c"}, {"y"}, "choose");
  onnx::GraphProto& yes = graph_attribute(node, "then_branch");
  add_node(yes, "Add", {"x", "w"}, {"sum"}, "negate");
  yes.add_output()->set_name("sum");
  onnx::GraphProto& no = graph_attribute(node, "else_branch");
  add_node(no, "Relu", {"n"}, {"sum"}, "relu");
  no.add_output()->set_name("sum");
  model.output("y");
  return model;
}

TEST(Subgraphs, CapturedValuesBecomeInputsAndConstantsMoveIn) {
  const auto network = choice().load();
  EXPECT_THAT(layer_names(*network), ElementsAre("negate", "choose"));
  const Layer& layer = network->layers[LayerId(1)];
  ASSERT_EQ(layer.inputs.size(), 3u);
  EXPECT_EQ(network->tensor(layer.inputs[1]).name, "x");
  EXPECT_EQ(network->tensor(layer.inputs[2]).name, "n");
  const Subgraph& yes = layer.attributes.required_graph("then_branch");
  EXPECT_THAT(yes.captures, ElementsAre(1));
  EXPECT_THAT(layer_names(*yes.network), ElementsAre("w", "negate_0"));
  EXPECT_EQ(yes.network->tensor(yes.network->outputs[0]).type, DataType::kFloat32);
  EXPECT_THAT(layer.attributes.required_graph("else_branch").captures, ElementsAre(2));
  const Tensor x = Tensor::of<float>({2}, {1, -2});
  EXPECT_THAT(first_output(*network, {Tensor::scalar(true), x}), ElementsAre(11, 18));
  EXPECT_THAT(first_output(*network, {Tensor::scalar(false), x}), ElementsAre(0, 2));
}

TEST(Subgraphs, ValuesAreCapturedThroughSeveralLevels) {
  Model model;
  model.input("c", {}, onnx::TensorProto::BOOL);
  model.input("x", {1});
  onnx::NodeProto& outer = model.node("If", {"c"}, {"y"}, "outer");
  for (const char* branch : {"then_branch", "else_branch"}) {
    onnx::GraphProto& graph = graph_attribute(outer, branch);
    onnx::NodeProto& inner = add_node(graph, "If", {"c"}, {"r"}, "inner");
    for (const char* inner_branch : {"then_branch", "else_branch"}) {
      onnx::GraphProto& innermost = graph_attribute(inner, inner_branch);
      add_node(innermost, "Add", {"x", "x"}, {"double"});
      innermost.add_output()->set_name("double");
    }
    graph.add_output()->set_name("r");
  }
  model.output("y");
  const auto network = model.load();
  EXPECT_EQ(network->layers[LayerId(0)].inputs.size(), 3u);  // the condition, and the captured c and x
  EXPECT_THAT(first_output(*network, {Tensor::scalar(true), Tensor::of<float>({1}, {4})}), ElementsAre(8));
}

TEST(Subgraphs, LoopsWithAbsentInputsCaptureBehindTheirFormalInputs) {
  Model model;
  model.input("trips", {}, onnx::TensorProto::INT64);
  model.input("x", {1});
  *model.graph().add_initializer() = float_tensor("zero", {1}, {0});
  onnx::NodeProto& loop = model.node("Loop", {"trips", "", "zero"}, {"sum"}, "loop");
  onnx::GraphProto& body = graph_attribute(loop, "body");
  set_type(*body.add_input(), "i", onnx::TensorProto::INT64, {});
  set_type(*body.add_input(), "go", onnx::TensorProto::BOOL, {});
  body.add_input()->set_name("so_far");
  add_node(body, "Add", {"so_far", "x"}, {"next"});
  body.add_output()->set_name("go");
  body.add_output()->set_name("next");
  model.output("sum");
  const auto network = model.load();
  const Layer& layer = network->layer(network->find_layer("loop"));
  ASSERT_EQ(layer.inputs.size(), 4u);
  EXPECT_EQ(layer.inputs[1], kNone);
  EXPECT_EQ(network->tensor(network->find_tensor("sum")).type, DataType::kFloat32);
  EXPECT_THAT(first_output(*network, {Tensor::scalar<std::int64_t>(3), Tensor::of<float>({1}, {1.5f})}),
              ElementsAre(4.5f));
}

TEST(Subgraphs, DanglingCapturesAreRefused) {
  Model model = choice();
  model.graph().mutable_node(1)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(1, "nowhere");
  expect_error(ErrorCode::kInvalidFile, {"'choose'", "'nowhere'"}, [&] { model.load(); });
}

TEST(Subgraphs, NestingWithoutMeasureIsRefused) {
  Model model;
  model.input("c", {}, onnx::TensorProto::BOOL);
  onnx::GraphProto* graph = &model.graph();
  for (int depth = 0; depth < 200; ++depth) {
    onnx::NodeProto& node = add_node(*graph, "If", {"c"}, {"y"});
    graph->add_output()->set_name("y");
    graph = &graph_attribute(node, "then_branch");
  }
  expect_error(ErrorCode::kInvalidFile, {"deep"}, [&] { model.load(); });
}

/// A model that calls the function f(a, b) of domain "local".
struct FunctionModel : Model {
  FunctionModel() {
    import_opset("local", 1);
    input("x", {2});
    output("y");
  }
  onnx::FunctionProto& function(const std::string& name, Names inputs, Names outputs) {
    onnx::FunctionProto& result = *proto.add_functions();
    result.set_name(name);
    result.set_domain("local");
    for (const auto& name : inputs) result.add_input(name);
    for (const auto& name : outputs) result.add_output(name);
    auto* opset = result.add_opset_import();
    opset->set_version(13);
    opset = result.add_opset_import();
    opset->set_domain("local");
    opset->set_version(1);
    return result;
  }
  onnx::NodeProto& call(const std::string& name, Names inputs, Names outputs, const std::string& node_name) {
    onnx::NodeProto& result = node(name, inputs, outputs, node_name);
    result.set_domain("local");
    return result;
  }
};

TEST(Functions, AreInlinedWithNamesOfTheirOwn) {
  FunctionModel model;
  onnx::FunctionProto& twice = model.function("Twice", {"a"}, {"b"});
  add_node(twice, "Add", {"a", "a"}, {"t"}, "add");
  add_node(twice, "Identity", {"t"}, {"b"}, "copy");
  onnx::FunctionProto& four = model.function("FourTimes", {"a"}, {"b"});
  add_node(four, "Twice", {"a"}, {"t"}, "first").set_domain("local");
  add_node(four, "Twice", {"t"}, {"b"}, "second").set_domain("local");
  model.call("FourTimes", {"x"}, {"t"}, "call");
  model.call("Twice", {"t"}, {"y"}, "again");
  const auto network = model.load();
  EXPECT_THAT(layer_names(*network), ElementsAre("call/first/add", "call/first/copy", "call/second/add",
                                                 "call/second/copy", "again/add", "again/copy"));
  EXPECT_EQ(network->layers[LayerId(0)].opset, 13);
  EXPECT_THAT(first_output(*network, {Tensor::of<float>({2}, {1, 2})}), ElementsAre(8, 16));
}

TEST(Functions, AttributesComeFromTheCallOrTheirDefaults) {
  FunctionModel model;
  onnx::FunctionProto& leaky = model.function("Leaky", {"a"}, {"b"});
  leaky.add_attribute("unused");
  auto* standard = leaky.add_attribute_proto();
  standard->set_name("slope");
  standard->set_type(Attribute::FLOAT);
  standard->set_f(0.5f);
  auto& reference = add_attribute(add_node(leaky, "LeakyRelu", {"a"}, {"b"}, "leaky"), "alpha", Attribute::FLOAT);
  reference.set_ref_attr_name("slope");
  model.call("Leaky", {"x"}, {"h"}, "default");
  add_attribute(model.call("Leaky", {"h"}, {"y"}, "given"), "slope", Attribute::FLOAT).set_f(0.25f);
  const auto network = model.load();
  EXPECT_THAT(first_output(*network, {Tensor::of<float>({2}, {-8, 1})}), ElementsAre(-1, 1));
  leaky.clear_attribute_proto();
  leaky.add_attribute("slope");
  EXPECT_FALSE(model.load()->layers[LayerId(0)].attributes.has("alpha"));
}

TEST(Functions, SubgraphsInsideSeeTheArguments) {
  FunctionModel model;
  model.input("c", {}, onnx::TensorProto::BOOL);
  onnx::FunctionProto& pick = model.function("Pick", {"cond", "a"}, {"b"});
  onnx::NodeProto& node = add_node(pick, "If", {"cond"}, {"b"}, "if");
  for (const char* branch : {"then_branch", "else_branch"}) {
    onnx::GraphProto& graph = graph_attribute(node, branch);
    add_node(graph, branch[0] == 't' ? "Neg" : "Relu", {"a"}, {"r"}, "body");
    graph.add_output()->set_name("r");
  }
  model.call("Pick", {"c", "x"}, {"y"}, "call");
  const auto network = model.load();
  const Tensor x = Tensor::of<float>({2}, {-1, 2});
  EXPECT_THAT(first_output(*network, {x, Tensor::scalar(true)}), ElementsAre(1, -2));
  EXPECT_THAT(first_output(*network, {x, Tensor::scalar(false)}), ElementsAre(0, 2));
}

TEST(Functions, OutputsMayBeInputs) {
  FunctionModel model;
  model.function("Pass", {"a"}, {"a"});
  model.call("Pass", {"x"}, {"y"}, "call");
  EXPECT_THAT(first_output(*model.load(), {Tensor::of<float>({2}, {1, 2})}), ElementsAre(1, 2));
}

TEST(Functions, RecursionAndExplosionAreRefused) {
  FunctionModel recursive;
  onnx::FunctionProto& loop = recursive.function("Loops", {"a"}, {"b"});
  add_node(loop, "Loops", {"a"}, {"b"}, "inner").set_domain("local");
  recursive.call("Loops", {"x"}, {"y"}, "call");
  expect_error(ErrorCode::kInvalidFile, {"'Loops'", "itself"}, [&] { recursive.load(); });
  FunctionModel explosive;
  for (int level = 0; level < 40; ++level) {
    onnx::FunctionProto& function = explosive.function("F" + std::to_string(level), {"a"}, {"b"});
    const std::string inner = level == 0 ? "Relu" : "F" + std::to_string(level - 1);
    const std::string domain = level == 0 ? "" : "local";
    add_node(function, inner, {"a"}, {"t"}).set_domain(domain);
    add_node(function, inner, {"t"}, {"b"}).set_domain(domain);
  }
  explosive.call("F39", {"x"}, {"y"}, "call");
  expect_error(ErrorCode::kInvalidFile, {"expand"}, [&] { explosive.load(); });
}

TEST(Functions, CallsWithTooManyArgumentsAreRefused) {
  FunctionModel model;
  add_node(model.function("One", {"a"}, {"b"}), "Relu", {"a"}, {"b"});
  model.call("One", {"x", "x"}, {"y"}, "call");
  expect_error(ErrorCode::kInvalidFile, {"'call'", "'One'"}, [&] { model.load(); });
}

}  // namespace
}  // namespace ulpscope::testing
