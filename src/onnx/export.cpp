#include "onnx/export.h"

#include <fmt/format.h>

#include <unordered_set>

#include "core/file.h"
#include "onnx/element_type.h"
#include "onnx/functions.h"
#include "onnx/graph_order.h"
#include "onnx/model_file.h"
#include "onnx/model_writer.h"
#include "onnx/opset_upgrade.h"
#include "onnx/type_support.h"
#include "onnx/typed_edit.h"
#include "ulpscope/error.h"

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

struct TypedExporter::Impl {
  ModelFile file;
  const Network& network;
  std::filesystem::path folder;
  std::vector<LayerId> layer_of_node;  ///< kNone: a Constant, or a call of a function.
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
  const auto& outputs = impl_->file.proto.graph().output();
  for (int o = 0; o < outputs.size() || o < static_cast<int>(network.outputs.size()); ++o)
    if (o >= outputs.size() || o >= static_cast<int>(network.outputs.size()) ||
        outputs[o].name() != network.tensor(network.outputs[o]).name)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[convert] {}: expected the outputs of the file, got others; a model can only be converted "
                      "with the outputs that it has",
                      network.source));
  impl_->inlined = inline_functions(impl_->file.proto, network.source);
  Adoption(impl_->file, network).run();
  for (const auto& node : impl_->file.proto.graph().node()) {
    LayerId layer = kNone;
    bool same = true;
    for (int o = 0; o < node.output_size(); ++o) {
      if (node.output(o).empty()) continue;
      const TensorId id = network.find_tensor(node.output(o));
      const LayerId producer = id == kNone ? kNone : network.tensor(id).producer;
      same &= producer != kNone && (layer == kNone || layer == producer);
      layer = producer;
    }
    if (layer != kNone && same) {
      const Layer& found = network.layer(layer);
      same = found.op->name == node.op_type() && found.op->domain == domain_of(node.domain()) &&
             found.op->kind != OpKind::kConstant;
    }
    impl_->layer_of_node.push_back(same ? layer : kNone);
  }
}

TypedExporter::~TypedExporter() = default;

IdMap<LayerId, char> TypedExporter::frozen() const {
  IdMap<LayerId, char> result(impl_->network.layers.size(), 1);
  for (LayerId layer : impl_->layer_of_node)
    if (layer != kNone) result[layer] = 0;
  for (LayerId l : result.ids())
    if (impl_->network.layers[l].op->kind == OpKind::kConstant) result[l] = 0;
  return result;
}

int TypedExporter::opset() const {
  for (const auto& import : impl_->file.proto.opset_import())
    if (domain_of(import.domain()).empty()) return static_cast<int>(import.version());
  return 1;
}

int TypedExporter::inlined() const { return impl_->inlined; }

namespace {

/// In the body of an If, Loop or Scan, where nothing is rewritten.
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
  return write_typed(impl_->file, impl_->network, impl_->layer_of_node, impl_->folder, changes, folder, name, limit);
}

}  // namespace ulpscope
