// What the importer refuses, and how it says so.
#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

using Proto = onnx::TensorProto;

void expect_unsupported(const Model& model, const std::vector<std::string>& parts) {
  expect_error(ErrorCode::kUnsupported, parts, [&] { model.load(); });
}

void expect_invalid(const Model& model, const std::vector<std::string>& parts) {
  expect_error(ErrorCode::kInvalidFile, parts, [&] { model.load(); });
}

TEST(Refusals, UnknownOperatorsAreAllNamed) {
  Model model = needs_constraints();
  model.node("Frobnicate", {"x"}, {"f"}, "frob_1");
  model.node("Frobnicate", {"x"}, {"f2"}, "frob_2");
  model.node("Twist", {"f"}, {"g"}, "twist").set_domain("my.ops");
  model.node("SequenceMap", {"f"}, {"h"}, "map");
  expect_unsupported(model,
                     {"'Frobnicate'", "ai.onnx", "'frob_1'", "2 other operators", "SequenceMap", "my.ops.Twist"});
}

TEST(Refusals, Opsets) {
  Model newer = needs_constraints();
  newer.proto.mutable_opset_import(0)->set_version(99);
  expect_unsupported(newer, {"opset 99", "28"});
  Model older = needs_constraints();
  older.proto.mutable_opset_import(0)->set_version(0);
  expect_unsupported(older, {"opset 0", "1"});
  Model none = needs_constraints();
  none.proto.clear_opset_import();
  expect_invalid(none, {"opset", "MatMul_0"});
  Model too_old_for_operator(13);
  too_old_for_operator.input("x", {2});
  too_old_for_operator.node("Gelu", {"x"}, {"y"}, "gelu");
  too_old_for_operator.output("y");
  expect_invalid(too_old_for_operator, {"'gelu'", "20", "13"});
}

TEST(Refusals, IrVersions) {
  Model old = needs_constraints();
  old.proto.set_ir_version(2);
  expect_unsupported(old, {"IR version 3", "got 2"});
  Model newer = needs_constraints();
  newer.proto.set_ir_version(1000);
  expect_unsupported(newer, {"IR version 1000"});
}

TEST(Refusals, ElementTypesByName) {
  const std::pair<int, const char*> types[] = {
      {Proto::STRING, "string"}, {Proto::COMPLEX64, "complex64"}, {77, "type 77"}};
  for (const auto& [type, name] : types) {
    Model initializer = needs_constraints();
    initializer.graph().mutable_initializer(1)->set_data_type(type);
    expect_unsupported(initializer, {"'fp16_max'", name});
    Model input = needs_constraints();
    input.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    expect_unsupported(input, {"'x'", name});
  }
}

TEST(Refusals, ArithmeticInTypesThatOnlyHoldValues) {
  const std::pair<int, const char*> types[] = {{Proto::FLOAT8E4M3FN, "fp8"},
                                               {Proto::FLOAT8E5M2, "float8_e5m2"},
                                               {Proto::INT4, "int4"},
                                               {Proto::FLOAT4E2M1, "float4_e2m1fn"}};
  for (const auto& [type, name] : types) {
    Model model = needs_constraints();
    model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    expect_unsupported(model, {"'MatMul_0' (MatMul)", name, "Cast"});
  }
}

TEST(Refusals, KindsOfValuesByName) {
  const auto with_input_type = [](const std::function<void(onnx::TypeProto&)>& set) {
    Model model = needs_constraints();
    model.graph().mutable_input(0)->clear_type();
    set(*model.graph().mutable_input(0)->mutable_type());
    return model;
  };
  expect_unsupported(with_input_type([](auto& type) { type.mutable_sequence_type(); }), {"'x'", "sequences"});
  expect_unsupported(with_input_type([](auto& type) { type.mutable_optional_type(); }), {"'x'", "optionals"});
  expect_unsupported(with_input_type([](auto& type) { type.mutable_map_type(); }), {"'x'", "maps"});
  expect_unsupported(with_input_type([](auto& type) { type.mutable_sparse_tensor_type(); }), {"'x'", "sparse"});
  expect_invalid(with_input_type([](auto&) {}), {"'x'", "no type"});
}

TEST(Refusals, SparseTensorsThatDoNotFit) {
  const auto with = [](const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& index_shape,
                       const std::vector<std::int64_t>& indices) {
    Model model = needs_constraints();
    onnx::SparseTensorProto& sparse = *model.graph().add_sparse_initializer();
    *sparse.mutable_values() = int64_tensor("sparse_one", {2}, {7, 8});
    *sparse.mutable_indices() = int64_tensor("", index_shape, indices);
    sparse.mutable_dims()->Assign(shape.begin(), shape.end());
    return model;
  };
  EXPECT_NO_THROW(with({2, 3}, {2}, {0, 5}).load());
  EXPECT_NO_THROW(with({2, 3}, {2, 2}, {0, 1, 1, 2}).load());
  expect_invalid(with({2, 3}, {2}, {0, 6}), {"'sparse_one'", "element 1", "(2, 3)", "outside"});
  expect_invalid(with({2, 3}, {2}, {-1, 5}), {"'sparse_one'", "element 0", "outside"});
  expect_invalid(with({2, 3}, {2, 2}, {0, 1, 0, 3}), {"'sparse_one'", "element 1", "outside"});
  expect_invalid(with({2, 3}, {3}, {0, 1, 2}), {"'sparse_one'", "indices", "int64(3,)"});
  expect_invalid(with({2, 3}, {2, 3}, {0, 1, 2, 3, 4, 5}), {"'sparse_one'", "indices", "(2, 3)"});
  expect_invalid(with({1 << 20, 1 << 20}, {2}, {0, 1}), {"'sparse_one'", "2 elements", "large"});
  expect_invalid(with({0, -1}, {2}, {0, 1}), {"'sparse_one'", "(0, -1)"});
  Model outside = with({2, 3}, {2}, {0, 5});
  outside.graph().mutable_sparse_initializer(0)->mutable_values()->set_data_location(onnx::TensorProto::EXTERNAL);
  expect_unsupported(outside, {"'sparse_one'", "external data"});
}

TEST(Refusals, ConstantForms) {
  const auto with = [](const std::string& attribute, onnx::AttributeProto::AttributeType type) {
    Model model;
    add_attribute(model.node("Constant", {}, {"c"}, "const"), attribute, type);
    model.output("c");
    return model;
  };
  expect_unsupported(with("value_string", onnx::AttributeProto::STRING), {"'const'", "string"});
  expect_unsupported(with("value_strings", onnx::AttributeProto::STRINGS), {"'const'", "string"});
  expect_invalid(with("sparse_value", onnx::AttributeProto::SPARSE_TENSOR), {"'const'", "no value"});
  expect_invalid(with("other", onnx::AttributeProto::INT), {"'const'", "no value"});
}

TEST(Refusals, AttributeKinds) {
  const auto with = [](onnx::AttributeProto::AttributeType type) {
    Model model = needs_constraints();
    add_attribute(*model.graph().mutable_node(1), "extra", type);
    return model;
  };
  expect_unsupported(with(onnx::AttributeProto::SPARSE_TENSOR), {"'Add'", "'extra'", "sparse"});
  expect_unsupported(with(onnx::AttributeProto::TYPE_PROTO), {"'Add'", "'extra'"});
  expect_unsupported(with(onnx::AttributeProto::GRAPHS), {"'Add'", "'extra'"});
  expect_unsupported(with(onnx::AttributeProto::TENSORS), {"'Add'", "'extra'"});
  expect_invalid(with(onnx::AttributeProto::UNDEFINED), {"'Add'", "'extra'", "no type"});
  Model reference = needs_constraints();
  add_attribute(*reference.graph().mutable_node(1), "extra", onnx::AttributeProto::INT).set_ref_attr_name("a");
  expect_invalid(reference, {"'Add'", "'extra'", "function"});
}

TEST(Refusals, CyclesAndDanglingValues) {
  Model cycle;
  cycle.input("x", {2});
  cycle.node("Add", {"x", "c"}, {"a"}, "one");
  cycle.node("Relu", {"a"}, {"b"}, "two");
  cycle.node("Relu", {"b"}, {"c"}, "three");
  cycle.node("Relu", {"c"}, {"d"}, "after");
  cycle.output("d");
  expect_invalid(cycle, {"cycle", "'one'", "'two'", "'three'"});
  Model self;
  self.node("Relu", {"a"}, {"a"}, "self");
  self.output("a");
  expect_invalid(self, {"cycle", "'self'"});
  Model dangling = needs_constraints();
  dangling.graph().mutable_node(2)->set_input(1, "nowhere");
  expect_invalid(dangling, {"'Sub'", "'nowhere'"});
  Model output = needs_constraints();
  output.output("nothing");
  expect_invalid(output, {"'nothing'"});
}

TEST(Refusals, NamesThatAreUsedTwice) {
  Model two_producers = needs_constraints();
  two_producers.graph().mutable_node(2)->set_output(0, "add_out_1");
  expect_invalid(two_producers, {"'add_out_1'", "'Add'", "'Sub'"});
  Model overwritten = needs_constraints();
  overwritten.graph().mutable_node(2)->set_output(0, "x");
  expect_invalid(overwritten, {"'Sub'", "'x'"});
  Model inputs = needs_constraints();
  inputs.input("x", {1});
  expect_invalid(inputs, {"'x'"});
  Model initializers = needs_constraints();
  *initializers.graph().add_initializer() = float_tensor("fp16_max", {1}, {1});
  expect_invalid(initializers, {"'fp16_max'"});
}

TEST(Refusals, NumbersOfInputsAndOutputs) {
  Model few = needs_constraints();
  few.graph().mutable_node(1)->mutable_input()->RemoveLast();
  expect_invalid(few, {"'Add'", "2", "got 1"});
  Model many = needs_constraints();
  many.graph().mutable_node(1)->add_input("x");
  expect_invalid(many, {"'Add'", "2", "got 3"});
  Model outputs = needs_constraints();
  outputs.graph().mutable_node(1)->add_output("more");
  expect_invalid(outputs, {"'Add'", "outputs", "got 2"});
}

}  // namespace
}  // namespace ulpscope::testing
