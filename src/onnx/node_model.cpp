#include "onnx/node_model.h"

#include <fmt/format.h>

#include "onnx-ml.pb.h"
#include "onnx/attribute_writer.h"
#include "onnx/element_type.h"
#include "onnx/model_writer.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using namespace onnx_model;
using Proto = onnx::AttributeProto;

constexpr int kNodeModelIrVersion = 8;  // what every ONNX Runtime of the last years reads

void describe_tensor(const Tensor& value, onnx::TensorProto& tensor) {
  tensor.set_data_type(to_onnx_type(value.type()));
  for (const std::int64_t dim : value.shape()) tensor.add_dims(dim);
  tensor.set_raw_data(packed_elements(value));
}

class NodeAttributeWriter : public PlainAttributeWriter {
 public:
  NodeAttributeWriter(const Layer& layer, const std::string& name, Proto& proto)
      : PlainAttributeWriter(name, proto), layer_(layer) {}
  using PlainAttributeWriter::operator();

  void operator()(const Tensor& value) const {
    proto_.set_type(Proto::TENSOR);
    describe_tensor(value, *proto_.mutable_t());
  }
  void operator()(const Subgraph&) const {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("attribute '{}' is a graph: {} cannot be a model of its own", proto_.name(), layer_.op->name),
        place_of("export", layer_));
  }

 private:
  const Layer& layer_;
};

void describe_input(const NodeInput& input, onnx::ValueInfoProto& info) {
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(to_onnx_type(input.type));
  if (!input.shape) return;
  auto& shape = *type.mutable_shape();
  for (const std::int64_t dim : *input.shape) shape.add_dim()->set_dim_value(dim);
}

}  // namespace

std::string node_model(const Layer& layer, std::span<const std::optional<NodeInput>> inputs) {
  onnx::ModelProto model;
  model.set_ir_version(kNodeModelIrVersion);
  auto& opset = *model.add_opset_import();
  opset.set_domain(std::string(layer.op->domain));
  opset.set_version(layer.opset);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name(layer.name);
  onnx::NodeProto& node = *graph.add_node();
  node.set_name(layer.name);
  node.set_op_type(std::string(layer.op->name));
  node.set_domain(std::string(layer.op->domain));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = inputs[i] ? fmt::format("i{}", i) : "";
    node.add_input(name);
    if (!inputs[i]) continue;
    if (inputs[i]->value) {
      onnx::TensorProto& constant = *graph.add_initializer();
      constant.set_name(name);
      describe_tensor(*inputs[i]->value, constant);
      continue;
    }
    onnx::ValueInfoProto& info = *graph.add_input();
    info.set_name(name);
    describe_input(*inputs[i], info);
  }
  // Outputs that nobody wants may be ones that the operator has to have.
  std::size_t wanted = layer.outputs.size();
  while (wanted > 0 && layer.outputs[wanted - 1] == kNone) --wanted;
  for (std::size_t o = 0; o < wanted; ++o) {
    const std::string name = fmt::format("o{}", o);
    node.add_output(name);
    if (layer.outputs[o] != kNone) graph.add_output()->set_name(name);
  }
  for (const auto& [name, value] : layer.attributes.all())
    std::visit(NodeAttributeWriter(layer, name, *node.add_attribute()), value);
  return model.SerializeAsString();
}

}  // namespace ulpscope
