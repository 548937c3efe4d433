// The Relu that ONNX Runtime drops in front of quantizers to fp8.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "onnx/quantization_check.h"
#include "onnx/quantization_graph.h"

namespace ulpscope {
namespace onnx_model {
namespace {

/// A zero point in one of the types that have negative numbers though their smallest code is 0.
bool is_fp8_zero(const onnx::GraphProto& graph, const std::string& name) {
  const auto fp8 = [](const onnx::TensorProto& value) {
    return value.data_type() >= onnx::TensorProto::FLOAT8E4M3FN &&
           value.data_type() <= onnx::TensorProto::FLOAT8E5M2FNUZ;
  };
  for (const onnx::TensorProto& each : graph.initializer())
    if (each.name() == name) return fp8(each);
  for (const onnx::NodeProto& node : graph.node())
    if (is_constant_node(node) && node.output_size() == 1 && node.output(0) == name)
      if (const auto* value = find_attribute(node, "value"); value != nullptr && value->has_t()) return fp8(value->t());
  return false;
}

std::string relu_before_fp8(const onnx::GraphProto& graph) {
  std::map<std::string_view, int> readers;
  for (const auto& output : graph.output()) ++readers[output.name()];
  for (const onnx::NodeProto& node : graph.node())
    for (const std::string& input : node.input()) ++readers[input];
  std::map<std::string_view, const onnx::NodeProto*> relus;
  for (const onnx::NodeProto& node : graph.node()) {
    if (node.op_type() == "Relu" && node.output_size() == 1) relus[node.output(0)] = &node;
    if (node.op_type() == "QuantizeLinear" && node.input_size() == 3)
      if (const auto relu = relus.find(node.input(0));
          relu != relus.end() && readers[relu->first] == 1 && is_fp8_zero(graph, node.input(2)))
        return node_name(*relu->second);
    for (const onnx::AttributeProto& attribute : node.attribute())
      if (attribute.has_g())
        if (std::string found = relu_before_fp8(attribute.g()); !found.empty()) return found;
  }
  return {};
}

}  // namespace
}  // namespace onnx_model

std::string relu_before_fp8(std::span<const std::byte> model, const std::string& source) {
  onnx_model::ModelFile file;
  file.source = source;
  onnx_model::read_model(model, file);
  return onnx_model::relu_before_fp8(file.proto.graph());
}

}  // namespace ulpscope
