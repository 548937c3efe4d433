// Tiny ONNX models for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "graph/evaluate.h"
#include "onnx-ml.pb.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {

using Names = std::initializer_list<std::string>;
using Dims = std::vector<std::int64_t>;

inline void set_type(onnx::ValueInfoProto& info, const std::string& name, int type, const Dims& dims) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (auto* shape = tensor->mutable_shape(); std::int64_t dim : dims) shape->add_dim()->set_dim_value(dim);
}

inline onnx::TensorProto float_tensor(const std::string& name, const Dims& dims, const std::vector<float>& values) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (std::int64_t dim : dims) tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

inline onnx::TensorProto int64_tensor(const std::string& name, const Dims& dims,
                                      const std::vector<std::int64_t>& values) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  for (std::int64_t dim : dims) tensor.add_dims(dim);
  for (std::int64_t value : values) tensor.add_int64_data(value);
  return tensor;
}

/// Adds to a GraphProto or a FunctionProto.
template <typename Graph>
onnx::NodeProto& add_node(Graph& graph, const std::string& op, Names inputs, Names outputs,
                          const std::string& name = "") {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name(name);
  for (const auto& input : inputs) node.add_input(input);
  for (const auto& output : outputs) node.add_output(output);
  return node;
}

inline onnx::AttributeProto& add_attribute(onnx::NodeProto& node, const std::string& name,
                                           onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

/// A model with a graph named "g".
struct Model {
  onnx::ModelProto proto;

  explicit Model(std::int64_t opset = 17) {
    proto.set_ir_version(8);
    proto.mutable_graph()->set_name("g");
    import_opset("", opset);
  }
  onnx::GraphProto& graph() { return *proto.mutable_graph(); }
  void import_opset(const std::string& domain, std::int64_t version) {
    auto* opset = proto.add_opset_import();
    opset->set_domain(domain);
    opset->set_version(version);
  }
  void input(const std::string& name, const Dims& dims, int type = onnx::TensorProto::FLOAT) {
    set_type(*graph().add_input(), name, type, dims);
  }
  void output(const std::string& name) { graph().add_output()->set_name(name); }
  onnx::NodeProto& node(const std::string& op, Names inputs, Names outputs, const std::string& name = "") {
    return add_node(graph(), op, inputs, outputs, name);
  }
  std::string bytes() const { return proto.SerializeAsString(); }
  std::shared_ptr<Network> load() const { return load_bytes(bytes()); }
  static std::shared_ptr<Network> load_bytes(const std::string& bytes) {
    return import_onnx(std::as_bytes(std::span(bytes)), "model.onnx", op_registry());
  }
};

/// The published example: MatMul, Add(+65504), Sub(-65504), MatMul, with 2 instead of 256 columns.
inline Model needs_constraints() {
  Model model;
  model.input("x", {1, 1, 2, 2});
  model.node("MatMul", {"x", "I_rot90"}, {"matmul_out_0"}, "MatMul_0");
  model.node("Add", {"matmul_out_0", "fp16_max"}, {"add_out_1"}, "Add");
  model.node("Sub", {"add_out_1", "fp16_max"}, {"sub_out_2"}, "Sub");
  model.node("MatMul", {"sub_out_2", "I_rot90"}, {"y"}, "MatMul_1");
  *model.graph().add_initializer() = float_tensor("I_rot90", {2, 2}, {0, 1, 1, 0});
  *model.graph().add_initializer() = float_tensor("fp16_max", {1, 1, 1, 1}, {65504});
  model.output("y");
  return model;
}

/// chosen = x > 0 somewhere ? (x + 65504) - 65504 : -x, in an If named "If".
inline void add_saturating_choice(Model& model, const std::string& chosen) {
  auto& reduce = model.node("ReduceMax", {"x"}, {"top"}, "Top");
  add_attribute(reduce, "keepdims", onnx::AttributeProto::INT).set_i(0);
  model.node("Greater", {"top", "nought"}, {"positive"}, "Greater");
  auto& choice = model.node("If", {"positive"}, {chosen}, "If");
  onnx::GraphProto& yes = *add_attribute(choice, "then_branch", onnx::AttributeProto::GRAPH).mutable_g();
  yes.set_name("yes");
  add_node(yes, "Add", {"x", "max"}, {"sum"}, "Add");
  add_node(yes, "Sub", {"sum", "max"}, {"back"}, "Sub");
  yes.add_output()->set_name("back");
  onnx::GraphProto& no = *add_attribute(choice, "else_branch", onnx::AttributeProto::GRAPH).mutable_g();
  no.set_name("no");
  add_node(no, "Neg", {"x"}, {"opposite"}, "Neg");
  no.add_output()->set_name("opposite");
  *model.graph().add_initializer() = float_tensor("max", {1}, {65504});
  *model.graph().add_initializer() = float_tensor("nought", {}, {0});
}

inline std::vector<std::string> layer_names(const Network& network) {
  std::vector<std::string> names;
  for (const Layer& layer : network.layers) names.push_back(layer.name);
  return names;
}

/// The first output of the network for these inputs.
inline std::vector<float> first_output(const Network& network, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> outputs = evaluate(network, inputs);
  const auto values = outputs.at(0).values<float>();
  return {values.begin(), values.end()};
}

/// Expects an Error of this code whose text has all of these parts.
template <typename Function>
void expect_error(ErrorCode code, const std::vector<std::string>& parts, Function&& function) {
  try {
    function();
    ADD_FAILURE() << "no error; expected one with '" << (parts.empty() ? "" : parts[0]) << "'";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const auto& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' is not in: " << error.what();
  }
}

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ulpscope_onnx_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace ulpscope::testing
