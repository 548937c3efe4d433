// Outputs of ONNX files.
#include "onnx/edit.h"

#include <gmock/gmock.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

std::string edited(const std::string& bytes, const Words& marked, const Words& excluded = {}) {
  return with_outputs(std::as_bytes(std::span(bytes)), "model.onnx", marked, excluded).join();
}

Words outputs_of(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  Words names;
  for (const auto& output : model.graph().output()) names.push_back(output.name());
  return names;
}

Model example() {
  Model model = needs_constraints();
  add_attribute(model.node("Constant", {}, {"k"}, "const"), "value_int", onnx::AttributeProto::INT).set_i(1);
  onnx::ValueInfoProto info;
  set_type(info, "add_out_1", onnx::TensorProto::FLOAT, {1, 1, 2, 2});
  *model.graph().add_value_info() = info;
  return model;
}

TEST(Edit, MarksEverythingThatIsNoConstant) {
  const std::string bytes = example().bytes();
  EXPECT_THAT(outputs_of(edited(bytes, {"mark", "all"})), ElementsAre("matmul_out_0", "add_out_1", "sub_out_2", "y"));
  EXPECT_THAT(outputs_of(edited(bytes, {"*"})), ElementsAre("matmul_out_0", "add_out_1", "sub_out_2", "y"));
}

TEST(Edit, ReplacesAndExcludes) {
  const std::string bytes = example().bytes();
  EXPECT_THAT(outputs_of(edited(bytes, {"sub_out_2", "add_out_1"})), ElementsAre("sub_out_2", "add_out_1"));
  EXPECT_THAT(outputs_of(edited(bytes, {"*_out_?", "y"})), ElementsAre("matmul_out_0", "add_out_1", "sub_out_2", "y"));
  EXPECT_THAT(outputs_of(edited(bytes, {"mark", "all"}, {"add_*", "y"})), ElementsAre("matmul_out_0", "sub_out_2"));
  EXPECT_THAT(outputs_of(edited(bytes, {"k"})), ElementsAre("k"));
}

TEST(Edit, ChangesNothingElse) {
  const Model model = example();
  onnx::ModelProto expected = model.proto, actual;
  ASSERT_TRUE(actual.ParseFromString(edited(model.bytes(), {"add_out_1"})));
  EXPECT_EQ(actual.graph().output(0).type().tensor_type().shape().dim_size(), 4);  // as the file describes the value
  expected.mutable_graph()->clear_output();
  actual.mutable_graph()->clear_output();
  EXPECT_EQ(actual.SerializeAsString(), expected.SerializeAsString());
}

TEST(Edit, RefusesUnknownNamesAndNoOutputs) {
  const std::string bytes = example().bytes();
  expect_error(ErrorCode::kInvalidArgument, {"model.onnx", "'add_out'", "'add_out_1'"},
               [&] { edited(bytes, {"add_out"}); });
  expect_error(ErrorCode::kInvalidArgument, {"'nothing_like_it'"}, [&] { edited(bytes, {"y"}, {"nothing_like_it"}); });
  expect_error(ErrorCode::kInvalidArgument, {"no outputs"}, [&] { edited(bytes, {"y"}, {"y"}); });
}

TEST(Edit, RefusesDamagedFiles) {
  const std::string bytes = example().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    try {
      edited(bytes.substr(0, size), {"mark", "all"});
    } catch (const Error&) {
    }
  }
  expect_error(ErrorCode::kInvalidFile, {"no graph"}, [&] { edited("", {"y"}); });
}

}  // namespace
}  // namespace ulpscope::testing
