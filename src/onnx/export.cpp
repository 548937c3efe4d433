#include "onnx/export.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/file.h"
#include "core/messages.h"
#include "onnx/element_type.h"
#include "onnx/functions.h"
#include "onnx/graph_order.h"
#include "onnx/model_file.h"
#include "onnx/model_writer.h"
#include "onnx/opset_upgrade.h"
#include "onnx/type_support.h"
#include "onnx/typed_edit.h"

namespace ulpscope {

using namespace onnx_model;

namespace {

/// What repairs changed in the network since it was imported, written into the file's graph: constants that nodes read
/// instead of others, and layers that stand between two nodes. Their elements stay the network's.
class Adoption {
 public:
  Adoption(ModelFile& file, const Network& network)
      : file_(file), graph_(*file.proto.mutable_graph()), network_(network) {
    for (const auto& input : graph_.input()) known_.insert(input.name());
    for (const auto& tensor : graph_.initializer()) known_.insert(tensor.name());
    for (const auto& node : graph_.node()) known_.insert(node.output().begin(), node.output().end());
  }

  void run() {
    std::unordered_set<std::string> replaced;
    const int nodes = graph_.node_size();
    for (int n = 0; n < nodes; ++n) {
      const LayerId id = layer_of(graph_.node(n));
      if (id == kNone) continue;
      const Layer& layer = network_.layer(id);
      for (int i = 0; i < graph_.node(n).input_size() && i < static_cast<int>(layer.inputs.size()); ++i) {
        const TensorId tensor = layer.input(i);
        if (tensor == kNone || known_.contains(network_.tensor(tensor).name)) {
          if (tensor == kNone || !added_.contains(tensor)) continue;
        } else if (!add(tensor)) {
          continue;
        }
        replaced.insert(graph_.node(n).input(i));
        graph_.mutable_node(n)->set_input(i, network_.tensor(tensor).name);
      }
    }
    for (const auto& node : graph_.node())
      for (const std::string& name : values_read(node)) replaced.erase(name);
    for (const auto& output : graph_.output()) replaced.erase(output.name());
    for (int i = graph_.initializer_size(); i-- > 0;) {
      const std::string name = graph_.initializer(i).name();
      if (!replaced.contains(name)) continue;
      graph_.mutable_initializer()->DeleteSubrange(i, 1);
      for (int k = graph_.input_size(); k-- > 0;)
        if (graph_.input(k).name() == name) graph_.mutable_input()->DeleteSubrange(k, 1);
    }
  }

 private:
  LayerId layer_of(const onnx::NodeProto& node) const {
    for (const auto& output : node.output()) {
      const TensorId id = output.empty() ? kNone : network_.find_tensor(output);
      const LayerId layer = id == kNone ? kNone : network_.tensor(id).producer;
      if (layer != kNone && network_.layer(layer).op->name == node.op_type() &&
          network_.layer(layer).op->domain == domain_of(node.domain()))
        return layer;
    }
    return kNone;
  }

  /// False for what it cannot say.
  bool add(TensorId id) {
    const TensorInfo& info = network_.tensor(id);
    if (info.value && info.producer == kNone) {
      onnx::TensorProto& tensor = *graph_.add_initializer();
      tensor.set_name(info.name);
      tensor.set_data_type(to_onnx_type(info.value.type()));
      for (std::int64_t dim : info.value.shape()) tensor.add_dims(dim);
      if (is_storage_only(info.value.type())) {
        tensor.set_raw_data(packed_elements(info.value));
      } else {
        set_payload(tensor, file_.tensors.size());
        TensorBytes& bytes = file_.tensors.emplace_back();
        bytes.has_raw = true;
        bytes.raw = {static_cast<const std::byte*>(info.value.raw()), info.value.bytes()};
      }
    } else if (info.producer != kNone && network_.layer(info.producer).attributes.all().empty()) {
      const Layer& layer = network_.layer(info.producer);
      for (TensorId input : present(layer.inputs))
        if (!known_.contains(network_.tensor(input).name) && !add(input)) return false;
      onnx::NodeProto& node = *graph_.add_node();
      node.set_op_type(std::string(layer.op->name));
      node.set_domain(std::string(layer.op->domain));
      node.set_name(layer.name);
      for (TensorId input : layer.inputs) node.add_input(input == kNone ? "" : network_.tensor(input).name);
      for (TensorId output : layer.outputs) node.add_output(output == kNone ? "" : network_.tensor(output).name);
    } else {
      return false;
    }
    known_.insert(info.name);
    added_.insert(id);
    return true;
  }

  ModelFile& file_;
  onnx::GraphProto& graph_;
  const Network& network_;
  std::unordered_set<std::string> known_;
  std::unordered_set<TensorId> added_;
};

}  // namespace

namespace {

/// What is no tensor of numbers in the file has given way to other tensors.
bool has_outputs_of(const Network& network, const onnx::GraphProto& graph) {
  std::vector<std::string> file, own;
  for (const auto& output : graph.output())  // Each once, as the importer hands them out.
    if (std::ranges::find(file, output.name()) == file.end()) file.push_back(output.name());
  for (TensorId id : network.outputs) own.push_back(network.tensor(id).name);
  const auto replaced = [](const onnx::ValueInfoProto& output) {
    using Type = onnx::TypeProto;
    const auto kind = output.type().value_case();
    return kind == Type::kSequenceType || kind == Type::kMapType ||
           (kind == Type::kTensorType && output.type().tensor_type().elem_type() == onnx::TensorProto::STRING);
  };
  if (std::ranges::none_of(graph.output(), replaced)) return file == own;
  std::vector<std::string> tensors;
  for (const auto& output : graph.output())
    if (!replaced(output)) tensors.push_back(output.name());
  return own.size() >= tensors.size() && std::equal(tensors.begin(), tensors.end(), own.begin());
}

}  // namespace

struct TypedExporter::Impl {
  ModelFile file;
  const Network& network;
  std::filesystem::path folder;
  int inlined = 0;

  explicit Impl(const Network& n) : network(n) {}
};

TypedExporter::TypedExporter(std::span<const std::byte> bytes, const Network& network, std::filesystem::path folder)
    : impl_(std::make_unique<Impl>(network)) {
  impl_->file.source = network.source;
  impl_->folder = folder.empty() ? std::filesystem::path(".") : std::move(folder);
  read_model(bytes, impl_->file, true);
  MappedFile::release(bytes.data(), bytes.size());
  // The tensors refer to the caller's bytes.
  impl_->file.owner = std::shared_ptr<const void>(bytes.data(), [](const void*) {});
  if (!has_outputs_of(network, impl_->file.proto.graph()))
    throw invalid_argument(
        "[convert] {}: expected the outputs of the file, got others; a model can only be converted with the outputs "
        "that it has",
        network.source);
  impl_->inlined = inline_functions(impl_->file.proto, network.source);
  Adoption(impl_->file, network).run();
}

TypedExporter::~TypedExporter() = default;

namespace {

/// Of a graph and of those inside of it; the result is part of one for all around them.
void find_nodes(const onnx::GraphProto& graph, const Network& network, std::int32_t first,
                IdMap<LayerId, char>& frozen) {
  const std::vector<LayerId> layers = layers_of_nodes(graph, network);
  const std::vector<Body> bodies = network.bodies();
  const auto place = [&](LayerId id) { return LayerId(first + id.number()); };
  for (LayerId l : network.layers.ids())
    if (network.layers[l].op->kind == OpKind::kConstant) frozen[place(l)] = 0;
  for (std::size_t n = 0; n < layers.size(); ++n) {
    if (layers[n] == kNone) continue;
    frozen[place(layers[n])] = 0;
    for (const auto& attribute : graph.node(static_cast<int>(n)).attribute()) {
      if (!attribute.has_g()) continue;
      for (const Body& body : bodies)
        if (body.holder == layers[n] && body.attribute == attribute.name())
          find_nodes(attribute.g(), *body.graph->network, place(body.first).number(), frozen);
    }
  }
}

}  // namespace

IdMap<LayerId, char> TypedExporter::frozen() const {
  IdMap<LayerId, char> result(impl_->network.num_all_layers(), 1);
  find_nodes(impl_->file.proto.graph(), impl_->network, 0, result);
  return result;
}

int TypedExporter::opset() const {
  for (const auto& import : impl_->file.proto.opset_import())
    if (domain_of(import.domain()).empty()) return static_cast<int>(import.version());
  return 1;
}

int TypedExporter::inlined() const { return impl_->inlined; }

namespace {

/// In the body of an If, Loop or Scan, where nothing is rewritten for another opset.
std::string blocking_in_body(const onnx::GraphProto& graph, int from, int to) {
  for (const auto& node : graph.node()) {
    if (domain_of(node.domain()).empty() && !onnx_means_the_same("", node.op_type(), from, to))
      return fmt::format("{} '{}' (inside of a body)", node.op_type(), node_name(node));
    for (const auto& attribute : node.attribute())
      if (attribute.has_g())
        if (std::string inner = blocking_in_body(attribute.g(), from, to); !inner.empty()) return inner;
  }
  return {};
}

}  // namespace

std::string TypedExporter::blocks_opset(int to, const IdMap<TensorId, int>& ranks) const {
  if (impl_->file.proto.functions_size() > 0) return "model-local functions, which have opsets of their own";
  const RankOf rank_of = [&](const std::string& name) {
    const TensorId id = impl_->network.find_tensor(name);
    return id == kNone ? -1 : ranks[id];
  };
  for (const auto& node : impl_->file.proto.graph().node()) {
    if (std::string found = upgrade_obstacle(node, opset(), to, rank_of); !found.empty()) return found;
    for (const auto& attribute : node.attribute())
      if (attribute.has_g())
        if (std::string inner = blocking_in_body(attribute.g(), opset(), to); !inner.empty()) return inner;
  }
  return {};
}

ExportReport TypedExporter::write(const TypedChanges& changes, const std::filesystem::path& folder,
                                  const std::string& name, std::optional<std::uint64_t> limit) const {
  return write_typed(impl_->file, impl_->network, impl_->folder, changes, folder, name, limit);
}

}  // namespace ulpscope
