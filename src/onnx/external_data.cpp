#include "onnx/external_data.h"

#include <memory>
#include <set>
#include <string>

#include "core/file.h"
#include "onnx/model_file.h"

namespace ulpscope {
namespace {

using Locations = std::set<std::string>;

void add_tensor(const onnx::TensorProto& tensor, Locations& locations) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data())
    if (entry.key() == "location") locations.insert(entry.value());
}

void add_graph(const onnx::GraphProto& graph, Locations& locations);

template <typename Nodes>
void add_nodes(const Nodes& nodes, Locations& locations) {
  for (const onnx::NodeProto& node : nodes) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_t()) add_tensor(attribute.t(), locations);
      for (const onnx::TensorProto& tensor : attribute.tensors()) add_tensor(tensor, locations);
      if (attribute.has_g()) add_graph(attribute.g(), locations);
      for (const onnx::GraphProto& graph : attribute.graphs()) add_graph(graph, locations);
    }
  }
}

void add_graph(const onnx::GraphProto& graph, Locations& locations) {
  for (const onnx::TensorProto& tensor : graph.initializer()) add_tensor(tensor, locations);
  add_nodes(graph.node(), locations);
}

}  // namespace

std::vector<std::filesystem::path> external_data_files(const std::shared_ptr<const MappedFile>& model,
                                                       const std::filesystem::path& folder) {
  onnx_model::ModelFile file;
  file.source = model->path().string();
  file.owner = model;
  file.mapped = true;
  onnx_model::read_model(model->bytes(), file);
  Locations locations;
  add_graph(file.proto.graph(), locations);
  for (const onnx::FunctionProto& function : file.proto.functions()) add_nodes(function.node(), locations);
  std::vector<std::filesystem::path> result;
  for (const std::string& location : locations)
    result.push_back((folder.empty() ? model->path().parent_path() : folder) / location);
  return result;
}

}  // namespace ulpscope
