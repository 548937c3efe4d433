#include "onnx/description.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/file.h"
#include "core/messages.h"
#include "onnx/element_type.h"
#include "onnx/model_file.h"
#include "onnx/tensor_reader.h"
#include "onnx/wire.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::uint32_t kGraphDocumentation = 10;  // GraphProto

std::string type_name(int number) { return number == 0 ? "" : onnx_model::onnx_type_name(number); }

OnnxValue value_of(const onnx::ValueInfoProto& info) {
  OnnxValue value;
  value.name = info.name();
  if (!info.has_type() || !info.type().has_tensor_type()) return value;
  const onnx::TypeProto::Tensor& type = info.type().tensor_type();
  value.type = type_name(type.elem_type());
  value.shape.emplace();
  for (const onnx::TensorShapeProto::Dimension& dim : type.shape().dim()) {
    if (dim.has_dim_param())
      value.shape->emplace_back(dim.dim_param());
    else
      value.shape->emplace_back(dim.has_dim_value() ? dim.dim_value() : std::int64_t{-1});
  }
  return value;
}

class Describer {
 public:
  Describer(onnx_model::TensorReader& reader, bool weights, bool ignore_external_data)
      : reader_(reader), weights_(weights), ignore_external_data_(ignore_external_data) {}

  OnnxGraph graph(const onnx::GraphProto& proto) {
    OnnxGraph result;
    result.name = proto.name();
    std::unordered_set<std::string> initialized;
    for (const onnx::TensorProto& tensor : proto.initializer()) {
      initialized.insert(tensor.name());
      result.initializers.push_back(constant(tensor, fmt::format("initializer '{}'", tensor.name())));
    }
    for (const onnx::ValueInfoProto& info : proto.input())
      if (!initialized.contains(info.name())) result.inputs.push_back(value_of(info));
    for (const onnx::ValueInfoProto& info : proto.output()) result.outputs.push_back(value_of(info));
    for (const onnx::ValueInfoProto& info : proto.value_info()) result.values.push_back(value_of(info));
    for (const onnx::NodeProto& node : proto.node()) {
      OnnxNode& entry = result.nodes.emplace_back();
      entry.name = node.name();
      entry.op = node.op_type();
      entry.domain = node.domain();
      entry.inputs.assign(node.input().begin(), node.input().end());
      entry.outputs.assign(node.output().begin(), node.output().end());
      for (const onnx::AttributeProto& attribute : node.attribute())
        if (auto value = attribute_of(attribute, node)) entry.attributes.emplace_back(attribute.name(), *value);
    }
    return result;
  }

 private:
  OnnxConstant constant(const onnx::TensorProto& tensor, const std::string& what) {
    OnnxConstant result;
    result.name = tensor.name();
    result.type = type_name(tensor.data_type());
    result.shape.assign(tensor.dims().begin(), tensor.dims().end());
    if (!weights_) return result;
    if (ignore_external_data_ && tensor.data_location() == onnx::TensorProto::EXTERNAL) {
      log_error(
          "Failed to load weights.\nNote: Error was: the data of {} lie in another file, and such data are ignored",
          what);
      return result;
    }
    try {
      result.value = reader_.read(tensor, what);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      log_warning(error.what());
    }
    return result;
  }

  std::optional<OnnxAttribute> attribute_of(const onnx::AttributeProto& attribute, const onnx::NodeProto& node) {
    switch (attribute.type()) {
      case onnx::AttributeProto::INT:
        return attribute.i();
      case onnx::AttributeProto::FLOAT:
        return attribute.f();
      case onnx::AttributeProto::STRING:
        return attribute.s();
      case onnx::AttributeProto::INTS:
        return std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end());
      case onnx::AttributeProto::FLOATS:
        return std::vector<float>(attribute.floats().begin(), attribute.floats().end());
      case onnx::AttributeProto::STRINGS:
        return std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
      case onnx::AttributeProto::TENSOR:
        return constant(attribute.t(), fmt::format("attribute '{}' of node '{}'", attribute.name(), node.name()));
      case onnx::AttributeProto::GRAPH:
        return std::make_shared<const OnnxGraph>(graph(attribute.g()));
      default:
        log_warning("[model] node '{}': attribute '{}' is of a kind that is not shown", node.name(), attribute.name());
        return std::nullopt;
    }
  }

  onnx_model::TensorReader& reader_;
  bool weights_, ignore_external_data_;
};

/// ModelFile leaves texts for people out.
std::string documentation_of(std::span<const std::byte> model) {
  std::string text;
  onnx_wire::Reader reader(model, model.data());
  for (onnx_wire::Field field; reader.next(field);) {
    if (field.number != onnx_wire::kModelGraph || field.type != onnx_wire::WireType::kBytes) continue;
    onnx_wire::Reader graph(field.payload, model.data());
    for (onnx_wire::Field inner; graph.next(inner);)
      if (inner.number == kGraphDocumentation && inner.type == onnx_wire::WireType::kBytes)
        text = onnx_wire::as_text(inner.payload);
  }
  return text;
}

}  // namespace

OnnxDescription describe_onnx(const std::filesystem::path& path, bool weights, const ImportOptions& options) {
  onnx_model::ModelFile file;
  file.source = path.string();
  const std::shared_ptr<MappedFile> mapping = MappedFile::open(path);
  file.owner = mapping;
  file.mapped = true;
  const std::span<const std::byte> bytes = std::as_const(*mapping).bytes();
  onnx_model::read_model(bytes, file);
  std::filesystem::path folder = options.external_data_dir;
  if (folder.empty()) folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  onnx_model::TensorReader reader(file, std::move(folder), options.ignore_external_data);
  OnnxDescription result;
  for (const auto& entry : file.proto.metadata_props()) result.metadata.emplace_back(entry.key(), entry.value());
  for (const onnx::OperatorSetIdProto& opset : file.proto.opset_import())
    result.opsets.emplace_back(opset.domain(), opset.version());
  result.graph = Describer(reader, weights, options.ignore_external_data).graph(file.proto.graph());
  result.graph.documentation = documentation_of(bytes);
  return result;
}

std::vector<std::string> inputs_without_shape(std::span<const std::byte> model, const std::string& source) {
  onnx_model::ModelFile file;
  file.source = source;
  onnx_model::read_model(model, file);
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto& input : file.proto.graph().input())
    if (!input.type().tensor_type().has_shape()) names.push_back(input.name());
  return names;
}

}  // namespace ulpscope
