#include "onnx/network_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "onnx-ml.pb.h"
#include "onnx/attribute_writer.h"
#include "onnx/element_type.h"

namespace ulpscope {
namespace {

using namespace onnx_model;

constexpr int kViewIrVersion = 8;

void describe_network(const Network& network, onnx::GraphProto& graph);

class ViewAttributeWriter : public PlainAttributeWriter {
 public:
  using PlainAttributeWriter::PlainAttributeWriter;
  using PlainAttributeWriter::operator();

  void operator()(const Tensor& value) const {
    (*this)(fmt::format("{} [{}]", name_of(value.type()), fmt::join(value.shape(), ", ")));
  }
  void operator()(const Subgraph& value) const {
    proto_.set_type(onnx::AttributeProto::GRAPH);
    describe_network(*value.network, *proto_.mutable_g());
  }
};

std::string view_name(const Network& network, TensorId id) { return id == kNone ? "" : network.tensor(id).name; }

void describe_tensor(const TensorInfo& tensor, onnx::ValueInfoProto& info) {
  info.set_name(tensor.name);
  auto& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(to_onnx_type(tensor.type));
  if (!tensor.shape) return;
  auto& shape = *type.mutable_shape();
  for (std::size_t d = 0; d < tensor.shape->size(); ++d) {
    auto& dim = *shape.add_dim();
    if (d < tensor.dim_names.size() && !tensor.dim_names[d].empty()) {
      dim.set_dim_param(tensor.dim_names[d]);
    } else if ((*tensor.shape)[d] >= 0) {
      dim.set_dim_value((*tensor.shape)[d]);
    }
  }
}

void describe_layer(const Network& network, const Layer& layer, onnx::NodeProto& node) {
  node.set_name(layer.name);
  node.set_op_type(std::string(layer.op->name));
  node.set_domain(std::string(layer.op->domain));
  for (const TensorId id : layer.inputs) node.add_input(view_name(network, id));
  for (const TensorId id : layer.outputs) node.add_output(view_name(network, id));
  for (const auto& [name, value] : layer.attributes.all())
    std::visit(ViewAttributeWriter(name, *node.add_attribute()), value);
  if (layer.precision) ViewAttributeWriter("precision", *node.add_attribute())(std::string(layer.precision->name()));
  std::vector<std::string> types;
  bool typed = false;
  for (const auto& type : layer.output_types) {
    typed = typed || type.has_value();
    types.emplace_back(type ? name_of(*type) : "");
  }
  if (typed) ViewAttributeWriter("output_types", *node.add_attribute())(types);
}

void describe_network(const Network& network, onnx::GraphProto& graph) {
  graph.set_name(network.name);
  std::set<TensorId> told;
  const auto tell = [&](TensorId id, onnx::ValueInfoProto* info) {
    describe_tensor(network.tensor(id), *info);
    told.insert(id);
  };
  for (const TensorId id : network.inputs) tell(id, graph.add_input());
  for (const TensorId id : network.outputs) tell(id, graph.add_output());
  for (const TensorId id : network.tensors.ids())
    if (!told.contains(id)) tell(id, graph.add_value_info());
  for (const LayerId id : network.layers.ids()) describe_layer(network, network.layer(id), *graph.add_node());
}

}  // namespace

std::string network_as_onnx(const Network& network) {
  onnx::ModelProto model;
  model.set_ir_version(kViewIrVersion);
  model.set_producer_name("ulpscope");
  model.set_doc_string("The layers of a network, to look at: without weights, and not to be run");
  std::map<std::string, int> opsets;
  for (const LayerId id : network.layers.ids()) {
    const Layer& layer = network.layer(id);
    opsets.emplace(layer.op->domain, layer.opset);
  }
  for (const auto& [domain, version] : opsets) {
    auto& opset = *model.add_opset_import();
    opset.set_domain(domain);
    opset.set_version(version);
  }
  describe_network(network, *model.mutable_graph());
  return model.SerializeAsString();
}

}  // namespace ulpscope
