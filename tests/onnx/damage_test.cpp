// Files that are damaged, of another format, or no files at all: one clear error each, never a crash.
#include <gmock/gmock.h>

#include <random>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

/// A model with most of what the importer knows.
std::string rich_model() {
  Model model = needs_constraints();
  model.import_opset("local", 1);
  model.input("c", {}, onnx::TensorProto::BOOL);
  *model.graph().add_initializer() = int64_tensor("shape", {2}, {2, 2});
  model.node("Reshape", {"y", "shape"}, {"r"}, "reshape");
  *add_attribute(model.node("Constant", {}, {"k"}, "const"), "value", onnx::AttributeProto::TENSOR).mutable_t() =
      float_tensor("", {2}, {1, 2});
  onnx::NodeProto& choose = model.node("If", {"c"}, {"chosen"}, "if");
  for (const char* branch : {"then_branch", "else_branch"}) {
    onnx::GraphProto& graph = *add_attribute(choose, branch, onnx::AttributeProto::GRAPH).mutable_g();
    add_node(graph, "Add", {"r", "k"}, {"out"}, "add");
    graph.add_output()->set_name("out");
  }
  onnx::FunctionProto& function = *model.proto.add_functions();
  function.set_name("Twice");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  function.add_opset_import()->set_version(17);
  add_node(function, "Add", {"a", "a"}, {"b"}, "add");
  model.node("Twice", {"chosen"}, {"twice"}, "call").set_domain("local");
  model.output("twice");
  return model.bytes();
}

/// True when the bytes were imported; false when they were refused with an Error that says something.
bool imports(const std::string& bytes) {
  try {
    Model::load_bytes(bytes);
    return true;
  } catch (const Error& error) {
    EXPECT_GT(std::string(error.what()).size(), 10u);
    return false;
  }
}

TEST(Damage, TruncationAtEveryByte) {
  const std::string bytes = rich_model();
  ASSERT_TRUE(imports(bytes));
  int accepted = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) accepted += imports(bytes.substr(0, size));
  EXPECT_LE(accepted, 2);  // what follows the graph can be missing without being missed
}

TEST(Damage, FlippedBits) {
  const std::string bytes = rich_model();
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    imports(damaged);
  }
}

TEST(Damage, RandomBytes) {
  std::mt19937 random(1);
  const std::string bytes = rich_model();
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 8; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    imports(damaged);
    imports(damaged.substr(random() % damaged.size()));
  }
}

/// A function of one input and output.
onnx::FunctionProto& add_function(Model& model, const std::string& name) {
  onnx::FunctionProto& function = *model.proto.add_functions();
  function.set_name(name);
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  function.add_opset_import()->set_version(17);
  return function;
}

Model model_of_calls() {
  Model model;
  model.import_opset("local", 1);
  model.input("x", {2});
  return model;
}

TEST(Damage, FunctionsThatCallOneAnotherDeeplyAreRefused) {
  Model model = model_of_calls();
  constexpr int kDeep = 30000;
  for (int i = 0; i < kDeep; ++i)
    add_node(add_function(model, "f" + std::to_string(i)), "f" + std::to_string(i + 1), {"a"}, {"b"})
        .set_domain("local");
  add_node(add_function(model, "f" + std::to_string(kDeep)), "Neg", {"a"}, {"b"});
  model.node("f0", {"x"}, {"y"}).set_domain("local");
  model.output("y");
  expect_error(ErrorCode::kInvalidFile, {"nested more than"}, [&] { model.load(); });
}

TEST(Damage, FunctionsThatExpandWithoutMeasureAreRefused) {
  Model model = model_of_calls();
  for (int level = 0; level < 3; ++level) {
    onnx::FunctionProto& function = add_function(model, "f" + std::to_string(level));
    for (int i = 0; i < 30; ++i) {
      onnx::NodeProto& node =
          level == 0 ? add_node(function, "Neg", {"a"}, {"b" + std::to_string(i)})
                     : add_node(function, "f" + std::to_string(level - 1), {"a"}, {"b" + std::to_string(i)});
      if (level != 0) node.set_domain("local");
      if (level == 0) add_attribute(node, "text", onnx::AttributeProto::STRING).set_s(std::string(10000, 'x'));
    }
    function.set_output(0, "b0");
  }
  model.node("f2", {"x"}, {"y"}).set_domain("local");
  model.output("y");
  expect_error(ErrorCode::kInvalidFile, {"expand to more than"}, [&] { model.load(); });
}

TEST(Damage, ManyCallsOfOneNameAreImported) {
  Model model = model_of_calls();
  onnx::FunctionProto& function = add_function(model, "F");
  add_node(function, "Neg", {"a"}, {"t"});
  add_node(function, "Neg", {"t"}, {"b"});
  constexpr int kCalls = 10000;
  for (int i = 0; i < kCalls; ++i) model.node("F", {"x"}, {"y" + std::to_string(i)}, "call").set_domain("local");
  model.output("y7");
  EXPECT_EQ(model.load()->layers.size(), 2u * kCalls);
}

TEST(Damage, HugeBooleansThatAreIgnoredAreNotLookedAt) {
  Model model;
  onnx::TensorProto& tensor = *model.graph().add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(onnx::TensorProto::BOOL);
  tensor.add_dims(std::int64_t{1} << 40);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  model.node("Not", {"w"}, {"y"});
  model.output("y");
  const std::string bytes = model.bytes();
  ImportOptions options;
  options.ignore_external_data = true;
  const auto network = import_onnx(std::as_bytes(std::span(bytes)), "model.onnx", op_registry(), options);
  EXPECT_EQ(network->layers.size(), 2u);
}

TEST(Damage, OtherFormatsAreNamed) {
  const auto expect = [](const std::string& content, const std::string& format) {
    expect_error(ErrorCode::kInvalidFile, {"model.onnx", "ONNX", format}, [&] { Model::load_bytes(content); });
  };
  expect("", "empty");
  expect("{\"a\": 1}", "JSON");
  expect("  [1, 2]", "JSON");
  expect("<!DOCTYPE html><html>", "HTML");
  expect("hello, this is no model\n", "text");
  expect("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS");
  expect(std::string("\x80\x04\x95\x10\x00", 5), "pickle");
  expect(std::string("PK\x03\x04\x14\x00", 6), "ZIP");
  expect(std::string("\x1f\x8b\x08\x00", 4), "gzip");
  expect(std::string("\x93NUMPY\x01\x00", 8), "NumPy");
  expect("\x08\x08\x12\x01x", "no graph");
}

TEST(Damage, NoFilesAtAll) {
  const TemporaryFolder folder;
  expect_error(ErrorCode::kNotFound, {"missing.onnx"}, [&] { import_onnx(folder / "missing.onnx", op_registry()); });
  expect_error(ErrorCode::kIo, {"directory"}, [&] { import_onnx(folder / "", op_registry()); });
  const auto empty = folder.write("empty.onnx", "");
  expect_error(ErrorCode::kInvalidFile, {"empty.onnx", "empty file"}, [&] { import_onnx(empty, op_registry()); });
}

}  // namespace
}  // namespace ulpscope::testing
