#include "onnx/typed_edit.h"

#include <fmt/format.h>

#include "onnx/element_type.h"
#include "onnx/quantization_graph.h"
#include "onnx/typed_graph.h"

namespace ulpscope::onnx_model {
namespace {

/// Every name of a value or a node, in every graph.
void collect_names(const onnx::GraphProto& graph, std::unordered_set<std::string>& names) {
  for (const auto& info : graph.input()) names.insert(info.name());
  for (const auto& info : graph.value_info()) names.insert(info.name());
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& node : graph.node()) {
    names.insert(node.name());
    names.insert(node.output().begin(), node.output().end());
    for_each_body(node, [&](const onnx::GraphProto& body) { collect_names(body, names); });
  }
}

}  // namespace

TypedFile::TypedFile(const ModelFile& file, const std::filesystem::path& folder, const TypedChanges& typed)
    : changes(typed), reader(file, folder, false), model(file.proto) {
  for (const TensorBytes& bytes : file.tensors) {
    Payload payload;
    payload.field = bytes.has_raw ? 9 : static_cast<std::uint32_t>(bytes.packed_field);
    payload.bytes = bytes.has_raw ? bytes.raw : bytes.packed;
    payloads.push_back(std::move(payload));
  }
  collect_names(model.graph(), names);
}

std::string TypedFile::fresh(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !names.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::size_t TypedFile::add_payload(Tensor source, DataType type, Rounding first) {
  Payload payload;
  payload.source = std::move(source);
  payload.type = type;
  payload.first = first;
  payloads.push_back(std::move(payload));
  return payloads.size() - 1;
}

onnx::TensorProto TypedFile::make_tensor(const std::string& name, const Tensor& source, DataType type, Rounding first) {
  onnx::TensorProto result;
  for (std::int64_t dim : source.shape()) result.add_dims(dim);
  result.set_data_type(to_onnx_type(type));
  if (!name.empty()) result.set_name(name);
  set_payload(result, add_payload(source, type, first));
  ++report.initializers;
  return result;
}

void TypedFile::import_domain(const char* domain, int version) {
  for (const auto& import : model.opset_import())
    if (import.domain() == domain) return;
  auto& import = *model.add_opset_import();
  import.set_domain(domain);
  import.set_version(version);
}

void TypedFile::note_casts(const onnx::GraphProto& before, const onnx::GraphProto& after) {
  std::unordered_set<std::string> known;
  for (const auto& node : before.node()) known.insert(node.name());
  for (const auto& node : after.node())
    if (node.op_type() == "Cast" && !node.name().empty() && !known.contains(node.name()))
      added_casts += (added_casts.empty() ? "" : "\n") + node.name();
}

void TypedFile::write_metadata() {
  auto metadata = changes.metadata;
  metadata.emplace_back("ulpscope.added_casts", added_casts);
  for (const auto& [key, value] : metadata) {
    auto& props = *model.mutable_metadata_props();
    const auto found = std::ranges::find(props, key, [](const auto& entry) -> const auto& { return entry.key(); });
    auto* entry = found == props.end() ? props.Add() : &*found;
    entry->set_key(key);
    entry->set_value(value);
  }
}

TypedEdit::TypedEdit(TypedFile& file, onnx::GraphProto& graph, const Network& network, const TypedChanges& changes,
                     bool is_main)
    : file_(file), graph_(graph), network_(network), changes_(changes), typing_(changes.typing), is_main_(is_main) {
  for (const auto& output : graph.output()) needed_before_.insert(output.name());
  for (const auto& node : graph.node())
    for (std::string& name : values_read(node)) needed_before_.insert(std::move(name));
  edit_bodies();
  source_ = graph_;
  layer_of_node_ = layers_of_nodes(source_, network);
  for (const auto& initializer : source_.initializer()) own_.insert(initializer.name());
  for (const auto& node : source_.node()) own_.insert(node.output().begin(), node.output().end());
  for (const auto& [convolution, normalization] : changes.absorbed) absorbed_[normalization] = convolution;
  for (const auto& parameter : changes.parameters) parameters_[{parameter.layer, parameter.input}] = &parameter.value;
  for (const auto& each : changes.quantized) quantized_[{each.layer, each.input}] = &each;
  replaced_.insert(changes.replaced.begin(), changes.replaced.end());
  for (const auto& node : source_.node())
    for (int i = 2; role_of(node) == Role::kMatMulNBits && i < std::min(node.input_size(), 4); ++i)
      if (const TensorId id = tensor(node.input(i)); id != kNone) scales_.insert(id);
  for (const auto& info : source_.value_info()) described_[info.name()] = &info;
  for (std::size_t o = 0; o < network.outputs.size(); ++o) output_types_[network.outputs[o]] = typing_.outputs[o];
}

void TypedEdit::edit_bodies() {
  if (changes_.bodies.empty()) return;
  const std::vector<LayerId> layers = layers_of_nodes(graph_, network_);
  for (std::size_t n = 0; n < layers.size(); ++n)
    for (const TypedBody& body : changes_.bodies) {
      if (layers[n] == kNone || body.holder != layers[n]) continue;
      for (auto& attribute : *graph_.mutable_node(static_cast<int>(n))->mutable_attribute())
        if (attribute.has_g() && attribute.name() == body.attribute)
          TypedEdit(file_, *attribute.mutable_g(),
                    *network_.layer(body.holder).attributes.required_graph(body.attribute).network, body.changes, false)
              .run();
    }
}

void TypedEdit::run() {
  find_live_nodes();
  find_variants();
  name_variants();
  write_nodes();
  write_initializers();
  write_descriptions();
  file_.note_casts(source_, graph_);
}

void TypedEdit::find_live_nodes() {
  std::unordered_set<std::string> needed;
  for (const auto& output : graph_.output()) needed.insert(output.name());
  live_.assign(num_nodes(), 0);
  // Readers may stand before producers in a file that is out of order: until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t n = num_nodes(); n-- > 0;) {
      if (live_[n]) continue;
      const onnx::NodeProto& node = source_node(n);
      if (is_absorbed(layer_of_node_[n])) {
        // Its output is written by the convolution.
        const bool wanted =
            std::ranges::any_of(node.output(), [&](const auto& o) { return !o.empty() && needed.contains(o); });
        if (wanted &&
            needed.insert(network_.tensor(network_.layer(absorbed_.at(layer_of_node_[n])).outputs[0]).name).second)
          changed = true;
        continue;
      }
      const auto any_output = [&](const std::unordered_set<std::string>& names) {
        return std::ranges::any_of(node.output(), [&](const auto& o) { return !o.empty() && names.contains(o); });
      };
      if (!any_output(needed) && any_output(needed_before_)) continue;
      live_[n] = 1;
      changed = true;
      for_each_read(n, [&](int i, TensorId id, const Typing::Read& read) {
        if (!is_copy(id, read)) needed.insert(node.input(i));
      });
      for (const auto& name : node.input())
        if (tensor(name) == kNone) needed.insert(name);
      for (const std::string& name : captured_values(node)) needed.insert(name);
    }
  }
  needed_ = std::move(needed);
  for (std::size_t n = 0; n < num_nodes(); ++n) file_.report.removed += live_[n] ? 0 : 1;
}

void TypedEdit::find_variants() {
  for (std::size_t n = 0; n < num_nodes(); ++n) {
    if (!live_[n]) continue;
    for_each_read(n, [&](int, TensorId id, const Typing::Read& read) {
      if (is_copy(id, read)) variants_[id][{read.type, read.first}];
    });
  }
}

void TypedEdit::name_variants() {
  for (auto& [id, variants] : variants_) {
    const std::string& name = network_.tensor(id).name;
    bool taken = !is_in_file(id) || !own_.contains(name) || needed_.contains(name);
    for (auto& [variant, chosen] : variants) {
      chosen = taken ? file_.fresh(fmt::format("{}_{}", name, short_name(variant.first))) : name;
      taken = true;
    }
  }
}

const Tensor& TypedEdit::elements(TensorId id) const {
  return is_in_file(id) ? network_.tensor(id).value : changes_.computed_constants[id];
}

void TypedEdit::add_initializer(const std::string& name, const Tensor& source, DataType type, Rounding first) {
  new_initializers_.push_back(file_.make_tensor(name, source, type, first));
}

std::string TypedEdit::name_in(TensorId id, DataType type) {
  const std::string& name = network_.tensor(id).name;
  const DataType own = written(id);
  const auto out = output_types_.find(id);
  const bool renamed = out != output_types_.end() && out->second != own && network_.tensor(id).producer != kNone;
  if (renamed && !inner_.contains(id)) inner_[id] = file_.fresh(fmt::format("{}_{}", name, short_name(own)));
  const std::string& source = renamed ? inner_.at(id) : name;
  if (type == DataType::kUndefined || type == own || !is_float(own)) return source;
  auto& cast = casts_[{id, type}];
  if (!cast.empty()) return cast;
  cast = renamed && out->second == type ? name : file_.fresh(fmt::format("{}_{}", name, short_name(type)));
  onnx::NodeProto node;
  node.set_op_type("Cast");
  node.set_name(file_.fresh(fmt::format("Cast_{}_{}", name, short_name(type))));
  node.add_input(source);
  node.add_output(cast);
  onnx::AttributeProto& to = attribute_of(node, "to");
  to.set_type(onnx::AttributeProto::INT);
  to.set_i(to_onnx_type(type));
  nodes_.push_back(std::move(node));
  ++file_.report.casts;
  if (cast != name) describe_as(name, cast, type);
  return cast;
}

void TypedEdit::describe_as(const std::string& original, const std::string& name, DataType type) {
  const auto found = described_.find(original);
  if (found == described_.end() || !found->second->type().has_tensor_type()) return;
  onnx::ValueInfoProto info = *found->second;
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(type));
  new_descriptions_.push_back(std::move(info));
}

std::string TypedEdit::name_of_read(TensorId id, const Typing::Read& read) {
  if (!is_copy(id, read))
    return is_constant(id) && !stays(id, read) ? network_.tensor(id).name : name_in(id, read.type);
  return variants_.at(id).at({read.type, read.first});
}

std::vector<std::size_t> TypedEdit::node_order() const {
  std::vector<std::pair<LayerId, std::size_t>> order;
  for (std::size_t n = 0; n < num_nodes(); ++n) {
    LayerId first = kNone;
    for (const auto& output : source_node(n).output())
      if (const TensorId id = tensor(output); id != kNone) first = std::max(first, network_.tensor(id).producer);
    order.emplace_back(first, n);
  }
  bool sorted = true;
  std::unordered_set<std::string> later;
  for (std::size_t n = num_nodes(); n-- > 0 && sorted;) {
    for (const std::string& name : values_read(source_node(n))) sorted &= !later.contains(name);
    later.insert(source_node(n).output().begin(), source_node(n).output().end());
  }
  if (!sorted) std::ranges::stable_sort(order, [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<std::size_t> result;
  for (const auto& entry : order) result.push_back(entry.second);
  return result;
}

}  // namespace ulpscope::onnx_model

namespace ulpscope {

ExportReport write_typed(const onnx_model::ModelFile& source, const Network& network,
                         const std::filesystem::path& source_folder, const TypedChanges& changes,
                         const std::filesystem::path& folder, const std::string& name,
                         std::optional<std::uint64_t> limit) {
  onnx_model::TypedFile file(source, source_folder, changes);
  onnx_model::TypedEdit(file, *file.model.mutable_graph(), network, changes, true).run();
  file.write_versions();
  file.load_external_data(*file.model.mutable_graph());
  file.write_metadata();
  const onnx_model::ModelWriter writer(file.model, std::move(file.payloads), name,
                                       limit.value_or(onnx_model::kLargestModelFile));
  file.report.bytes = writer.model_bytes() + writer.data_bytes();
  file.report.external = writer.data_bytes() > 0;
  file.report.quantizers = onnx_model::has_quantizers(file.model.graph());
  writer.write(folder);
  return file.report;
}

namespace onnx_model {

std::vector<LayerId> layers_of_nodes(const onnx::GraphProto& graph, const Network& network) {
  std::vector<LayerId> result;
  for (const auto& node : graph.node()) {
    LayerId layer = kNone;
    bool same = true;
    for (const auto& output : node.output()) {
      if (output.empty()) continue;
      const TensorId id = network.find_tensor(output);
      const LayerId producer = id == kNone ? kNone : network.tensor(id).producer;
      same &= producer != kNone && (layer == kNone || layer == producer);
      layer = producer;
    }
    if (layer != kNone && same) {
      const Layer& found = network.layer(layer);
      same = found.op->name == node.op_type() && found.op->domain == domain_of(node.domain()) &&
             found.op->kind != OpKind::kConstant;
    }
    result.push_back(same ? layer : kNone);
  }
  return result;
}

}  // namespace onnx_model
}  // namespace ulpscope
