#include "onnx/quantization_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "formats/encoding.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {
namespace {

constexpr std::array<std::pair<std::string_view, Role>, 11> kRoles{{
    {"QuantizeLinear", Role::kQuantize},
    {"DequantizeLinear", Role::kDequantize},
    {"TRT_FP8QuantizeLinear", Role::kQuantize},
    {"TRT_FP8DequantizeLinear", Role::kDequantize},
    {"TRT_INT4QuantizeLinear", Role::kQuantize},
    {"TRT_INT4DequantizeLinear", Role::kDequantize},
    {"TRT_FP4DynamicQuantize", Role::kFp4Dynamic},
    {"TRT_MXFP8DynamicQuantize", Role::kMxDynamic},
    {"TRT_MXFP8DequantizeLinear", Role::kMxDequantize},
    {"DynamicQuantizeLinear", Role::kDynamic},
    {"MatMulNBits", Role::kMatMulNBits},
}};

constexpr std::array<std::string_view, 6> kMovements{"Identity", "Reshape", "Transpose",
                                                     "Flatten",  "Squeeze", "Unsqueeze"};

std::optional<Shape> told_shape(const onnx::ValueInfoProto& info) {
  if (!info.has_type() || !info.type().has_tensor_type() || !info.type().tensor_type().has_shape()) return std::nullopt;
  Shape shape;
  for (const auto& dim : info.type().tensor_type().shape().dim()) {
    if (!dim.has_dim_value() || dim.dim_value() < 0) return std::nullopt;
    shape.push_back(dim.dim_value());
  }
  return shape;
}

bool keeps_shape(const onnx::NodeProto& node) {
  const Role role = role_of(node);
  return (role != Role::kNone && role != Role::kMatMulNBits) || node.op_type() == "Cast" ||
         node.op_type() == "Identity" || node.op_type() == "Relu";
}

}  // namespace

Role role_of(const onnx::NodeProto& node) {
  const std::string domain = domain_of(node.domain());
  if (!domain.empty() && domain != "trt" && domain != "com.microsoft") return Role::kNone;
  const auto found =
      std::ranges::find(kRoles, std::string_view(node.op_type()), &std::pair<std::string_view, Role>::first);
  return found == kRoles.end() ? Role::kNone : found->second;
}

bool has_quantizers(const onnx::GraphProto& graph) {
  return std::ranges::any_of(graph.node(), [](const onnx::NodeProto& node) {
    if (role_of(node) != Role::kNone) return true;
    return std::ranges::any_of(node.attribute(), [](const onnx::AttributeProto& attribute) {
      return (attribute.has_g() && has_quantizers(attribute.g())) ||
             std::ranges::any_of(attribute.graphs(), has_quantizers);
    });
  });
}

QuantizationGraph::QuantizationGraph(const onnx::GraphProto& graph, TensorReader& reader,
                                     const QuantizationGraph* outer)
    : graph_(graph), reader_(reader), outer_(outer) {
  const auto describe = [&](const onnx::ValueInfoProto& info) {
    if (auto shape = told_shape(info)) shapes_[info.name()] = *std::move(shape);
    if (info.type().has_tensor_type()) types_[info.name()] = info.type().tensor_type().elem_type();
  };
  for (const auto& info : graph.input()) describe(info);
  for (const auto& info : graph.output()) describe(info);
  for (const auto& info : graph.value_info()) describe(info);
  const auto add_constant = [&](const std::string& name, const onnx::TensorProto& tensor) {
    constants_[name] = &tensor;
    types_[name] = tensor.data_type();
    shapes_[name] = Shape(tensor.dims().begin(), tensor.dims().end());
    settled_.insert(name);
  };
  for (const auto& tensor : graph.initializer()) add_constant(tensor.name(), tensor);
  for (const onnx::NodeProto& node : graph.node()) {
    for (const auto& output : node.output())
      if (!output.empty()) producers_[output] = &node;
    if (is_constant_node(node) && node.output_size() == 1)
      if (const auto* value = find_attribute(node, "value"); value != nullptr && value->has_t())
        add_constant(node.output(0), value->t());
    const Role role = role_of(node);
    const bool dynamic = role == Role::kFp4Dynamic || role == Role::kMxDynamic || role == Role::kDynamic;
    const auto settled = [&](const std::string& name) { return name.empty() || is_settled(name); };
    if (dynamic || std::ranges::all_of(node.input(), settled))
      settled_.insert(node.output().begin(), node.output().end());
    if (keeps_shape(node) && node.input_size() > 0 && node.output_size() > 0 && !shapes_.contains(node.output(0)))
      if (auto same = shape(node.input(0))) shapes_[node.output(0)] = *std::move(same);
    if (role == Role::kFp4Dynamic || role == Role::kMxDynamic || role == Role::kQuantize)
      types_[node.output(0)] = quantized_type(node);
  }
}

const onnx::TensorProto* QuantizationGraph::constant(const std::string& name) const {
  if (const auto found = constants_.find(name); found != constants_.end()) return found->second;
  return outer_ == nullptr || producers_.contains(name) ? nullptr : outer_->constant(name);
}

Tensor QuantizationGraph::elements(const std::string& name) const {
  const onnx::TensorProto* tensor = constant(name);
  if (tensor == nullptr) return {};
  try {
    return reader_.read(*tensor, fmt::format("initializer '{}'", name));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) return {};
    throw;
  }
}

const onnx::NodeProto* QuantizationGraph::producer(const std::string& name) const {
  if (const auto found = producers_.find(name); found != producers_.end()) return found->second;
  return outer_ == nullptr || constants_.contains(name) ? nullptr : outer_->producer(name);
}

std::optional<Shape> QuantizationGraph::shape(const std::string& name) const {
  if (const auto found = shapes_.find(name); found != shapes_.end()) return found->second;
  return outer_ == nullptr || producers_.contains(name) ? std::nullopt : outer_->shape(name);
}

bool QuantizationGraph::is_settled(const std::string& name) const {
  return settled_.contains(name) || (outer_ != nullptr && !producers_.contains(name) && outer_->is_settled(name));
}

const onnx::NodeProto* QuantizationGraph::behind_movement(const std::string& name) const {
  const onnx::NodeProto* node = producer(name);
  while (node != nullptr && domain_of(node->domain()).empty() && node->input_size() > 0 &&
         std::ranges::find(kMovements, std::string_view(node->op_type())) != kMovements.end())
    node = producer(node->input(0));
  return node;
}

int QuantizationGraph::quantized_type(const onnx::NodeProto& node) const {
  const auto type_of = [&](const std::string& name) {
    for (const QuantizationGraph* graph = this; graph != nullptr; graph = graph->outer_)
      if (const auto found = graph->types_.find(name); found != graph->types_.end()) return found->second;
    return 0;
  };
  switch (role_of(node)) {
    case Role::kFp4Dynamic:
      return onnx::TensorProto::FLOAT4E2M1;
    case Role::kMxDynamic:
      return onnx::TensorProto::FLOAT8E4M3FN;
    case Role::kDequantize:
    case Role::kMxDequantize:
      return type_of(node.input(0));
    case Role::kQuantize:
      break;
    default:
      return 0;
  }
  if (node.op_type() == "TRT_FP8QuantizeLinear") return onnx::TensorProto::FLOAT8E4M3FN;
  if (node.op_type() == "TRT_INT4QuantizeLinear") return onnx::TensorProto::INT4;
  if (node.input_size() > 2 && !node.input(2).empty()) return type_of(node.input(2));
  const auto* type = find_attribute(node, "output_dtype");
  return type != nullptr && type->i() != 0 ? static_cast<int>(type->i()) : int{onnx::TensorProto::UINT8};
}

std::vector<char> QuantizationGraph::empty_blocks(const onnx::NodeProto& node) const {
  const auto integer = [&](std::string_view name, std::int64_t absent) {
    const onnx::AttributeProto* attribute = find_attribute(node, name);
    return attribute == nullptr ? absent : attribute->i();
  };
  const std::int64_t block = integer("block_size", 0);
  // A zero point would have to be looked at, too.
  if (role_of(node) != Role::kDequantize || node.input_size() != 2 || block <= 0) return {};
  const Tensor codes = elements(node.input(0)), scales = elements(node.input(1));
  const auto rank = static_cast<std::int64_t>(codes ? codes.rank() : 0);
  const std::int64_t given = integer("axis", 1), axis = given < 0 ? given + rank : given;
  if (!codes || !scales || axis < 0 || axis >= rank) return {};
  const ScaleLayout layout({.granularity = Granularity::kBlock, .axis = static_cast<int>(axis), .block = block},
                           codes.shape());
  if (layout.scales != scales.shape()) return {};
  std::vector<char> empty(static_cast<std::size_t>(scales.size()), 1);
  const Tensor wide = codes.cast(DataType::kFloat32);
  for (std::int64_t i = 0; i < wide.size(); ++i)
    if (wide.data<float>()[i] != 0) empty[static_cast<std::size_t>(layout.index(i))] = 0;
  return empty;
}

bool QuantizationGraph::same_quantizer(const onnx::NodeProto& a, const onnx::NodeProto& b) const {
  const auto same = [&](int input) {
    const auto name = [&](const onnx::NodeProto& node) { return input < node.input_size() ? node.input(input) : ""; };
    if (name(a) == name(b)) return true;
    const Tensor x = elements(name(a)), y = elements(name(b));
    // An absent zero point is one of zeros.
    if (input == 2 && (!x || !y)) {
      const Tensor& other = x ? x : y;
      const auto* bytes = other ? static_cast<const unsigned char*>(other.raw()) : nullptr;
      return bytes == nullptr ||
             std::all_of(bytes, bytes + other.bytes(), [](unsigned char each) { return each == 0; });
    }
    return x && y && x.type() == y.type() && x.size() == y.size() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
  };
  const int first = quantized_type(a), second = quantized_type(b);
  if (first != 0 && second != 0 && first != second) return false;
  return same(1) && (a.input_size() < 3 && b.input_size() < 3 ? true : same(2));
}

}  // namespace ulpscope::onnx_model
