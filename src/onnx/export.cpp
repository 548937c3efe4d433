#include "onnx/export.h"

#include <fmt/format.h>

#include "onnx/functions.h"
#include "onnx/model_file.h"
#include "onnx/type_support.h"
#include "onnx/typed_edit.h"
#include "ulpscope/error.h"

namespace ulpscope {

using namespace onnx_model;

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

}  // namespace

struct TypedExporter::Impl {
  ModelFile file;
  const Network& network;
  std::filesystem::path folder;
  std::vector<LayerId> layer_of_node;  ///< kNone: a Constant, or a call of a function.

  explicit Impl(const Network& n) : network(n) {}
};

TypedExporter::TypedExporter(std::span<const std::byte> bytes, const Network& network, std::filesystem::path folder)
    : impl_(std::make_unique<Impl>(network)) {
  impl_->file.source = network.source;
  impl_->folder = folder.empty() ? std::filesystem::path(".") : std::move(folder);
  read_model(bytes, impl_->file, true);
  // The tensors refer to the caller's bytes.
  impl_->file.owner = std::shared_ptr<const void>(bytes.data(), [](const void*) {});
  const auto& outputs = impl_->file.proto.graph().output();
  for (int o = 0; o < outputs.size() || o < static_cast<int>(network.outputs.size()); ++o)
    if (o >= outputs.size() || o >= static_cast<int>(network.outputs.size()) ||
        outputs[o].name() != network.tensor(network.outputs[static_cast<std::size_t>(o)]).name)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[convert] {}: expected the outputs of the file, got others; a model can only be converted "
                      "with the outputs that it has",
                      network.source));
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

std::vector<char> TypedExporter::frozen() const {
  std::vector<char> result(impl_->network.layers.size(), 1);
  for (LayerId layer : impl_->layer_of_node)
    if (layer != kNone) result[at(layer)] = 0;
  for (std::size_t l = 0; l < result.size(); ++l)
    if (impl_->network.layers[l].op->kind == OpKind::kConstant) result[l] = 0;
  return result;
}

int TypedExporter::opset() const {
  for (const auto& import : impl_->file.proto.opset_import())
    if (domain_of(import.domain()).empty()) return static_cast<int>(import.version());
  return 1;
}

namespace {

std::string blocking_node(const onnx::GraphProto& graph, int from, int to) {
  for (const auto& node : graph.node()) {
    const bool inference_form =
        node.op_type() == "BatchNormalization" && node.output_size() == 1 && from >= 9;  // only training changed
    if (domain_of(node.domain()).empty() && !inference_form && !onnx_means_the_same("", node.op_type(), from, to))
      return fmt::format("{} '{}'", node.op_type(), node_name(node));
    for (const auto& attribute : node.attribute())
      if (attribute.has_g())
        if (std::string inner = blocking_node(attribute.g(), from, to); !inner.empty()) return inner;
  }
  return {};
}

}  // namespace

std::string TypedExporter::blocks_opset(int to) const {
  if (impl_->file.proto.functions_size() > 0) return "model-local functions, which have opsets of their own";
  return blocking_node(impl_->file.proto.graph(), opset(), to);
}

ExportReport TypedExporter::write(const TypedChanges& changes, const std::filesystem::path& folder,
                                  const std::string& name, std::optional<std::uint64_t> limit) const {
  return write_typed(impl_->file, impl_->network, impl_->layer_of_node, impl_->folder, changes, folder, name, limit);
}

}  // namespace ulpscope
