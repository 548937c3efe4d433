// Initializers, descriptions of values, and versions of a typed file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "onnx/element_type.h"
#include "onnx/typed_graph.h"

namespace ulpscope::onnx_model {

void TypedEdit::write_initializers() {
  std::vector<onnx::TensorProto> kept;
  std::unordered_set<std::string> gone;
  for (const auto& tensor_proto : source_.initializer()) {
    const std::string& name = tensor_proto.name();
    const TensorId id = tensor(name);
    const auto found = id == kNone ? variants_.end() : variants_.find(id);
    const Variant* own = nullptr;
    if (found != variants_.end())
      for (const auto& [variant, chosen] : found->second)
        if (chosen == name) own = &variant;
    if (own != nullptr) {
      kept.push_back(file_.make_tensor(name, elements(id), own->first, own->second));
      if (tensor_proto.has_doc_string()) kept.back().set_doc_string(tensor_proto.doc_string());
      retyped_[name] = own->first;
    } else if (needed_.contains(name) || !needed_before_.contains(name)) {
      kept.push_back(id != kNone && replaced_.contains(id)
                         ? file_.make_tensor(name, elements(id), declared(id), Rounding::kNone)
                         : tensor_proto);
    } else {
      gone.insert(name);
    }
  }
  for (const auto& [id, variants] : variants_)
    for (const auto& [variant, name] : variants)
      if (name != network_.tensor(id).name) add_initializer(name, elements(id), variant.first, variant.second);
  graph_.clear_initializer();
  for (auto& each : kept) *graph_.add_initializer() = std::move(each);
  for (auto& each : new_initializers_) {
    // Before IR version 4 every initializer is an input as well.
    if (is_main_ && file_.model.ir_version() < 4) {
      onnx::ValueInfoProto& info = *graph_.add_input();
      info.set_name(each.name());
      auto* type = info.mutable_type()->mutable_tensor_type();
      type->set_elem_type(each.data_type());
      type->mutable_shape();
      for (std::int64_t dim : each.dims()) type->mutable_shape()->add_dim()->set_dim_value(dim);
    }
    *graph_.add_initializer() = std::move(each);
  }
  for (int i = graph_.input_size(); i-- > 0;) {
    auto& input = *graph_.mutable_input(i);
    if (gone.contains(input.name())) {
      graph_.mutable_input()->DeleteSubrange(i, 1);
      continue;
    }
    if (const auto found = retyped_.find(input.name()); found != retyped_.end())
      input.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(found->second));
  }
  // Constant nodes with other elements than the file's.
  for (auto& node : *graph_.mutable_node()) {
    if (!is_constant_node(node)) continue;
    const TensorId id = tensor(node.output(0));
    if (id == kNone || !replaced_.contains(id) || !needed_.contains(node.output(0))) continue;
    node.clear_attribute();
    onnx::AttributeProto& attribute = attribute_of(node, "value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = file_.make_tensor("", elements(id), declared(id), Rounding::kNone);
  }
}

void TypedEdit::write_descriptions() {
  for (auto& input : *graph_.mutable_input()) {
    const TensorId id = tensor(input.name());
    if (id != kNone && network_.tensor(id).producer == kNone && !network_.tensor(id).value && is_float(written(id)))
      input.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(written(id)));
  }
  for (std::size_t o = 0; o < network_.outputs.size(); ++o) {
    const TensorId id = network_.outputs[o];
    // None: it goes into a sequence or map, which the file hands out. Several: it is listed twice.
    for (auto& output : *graph_.mutable_output()) {
      if (output.name() != network_.tensor(id).name || !output.type().has_tensor_type()) continue;
      auto& type = *output.mutable_type()->mutable_tensor_type();
      if (is_float(typing_.outputs[o])) type.set_elem_type(to_onnx_type(typing_.outputs[o]));
      // onnx.checker wants a shape of every output, which exporters do not always give. What a loop hands on may have
      // another rank each time.
      if (!is_main_ || type.has_shape() || !changes_.ranks.contains(id) || changes_.ranks[id] < 0) continue;
      type.mutable_shape();
      for (int d = 0; d < changes_.ranks[id]; ++d) type.mutable_shape()->add_dim();
    }
  }
  std::unordered_set<std::string> values;
  for (const auto& node : graph_.node()) values.insert(node.output().begin(), node.output().end());
  for (const auto& initializer : graph_.initializer()) values.insert(initializer.name());
  for (const auto& input : graph_.input()) values.insert(input.name());
  for (int i = graph_.value_info_size(); i-- > 0;) {
    auto& info = *graph_.mutable_value_info(i);
    const TensorId id = tensor(info.name());
    // What is gone, and outputs that have an entry of their own.
    if (needed_before_.contains(info.name()) && !values.contains(info.name())) {
      graph_.mutable_value_info()->DeleteSubrange(i, 1);
      continue;
    }
    if (id == kNone || !info.type().has_tensor_type()) continue;
    DataType type = written(id);
    if (const auto found = retyped_.find(info.name()); found != retyped_.end()) type = found->second;
    if (const auto found = output_types_.find(id); found != output_types_.end()) type = found->second;
    if (is_constant(id) && variants_.contains(id))
      for (const auto& [variant, name] : variants_.at(id))
        if (name == info.name()) type = variant.first;
    if (is_float(type)) info.mutable_type()->mutable_tensor_type()->set_elem_type(to_onnx_type(type));
  }
  for (auto& info : new_descriptions_) *graph_.add_value_info() = std::move(info);
}

int TypedFile::opset_of_source() const {
  for (const auto& import : model.opset_import())
    if (domain_of(import.domain()).empty()) return static_cast<int>(import.version());
  return 1;
}

namespace {

void drop_inputs_that_are_initializers(onnx::GraphProto& body);

void drop_inputs_of_bodies(onnx::GraphProto& graph) {
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) drop_inputs_that_are_initializers(*attribute.mutable_g());
}

void drop_inputs_that_are_initializers(onnx::GraphProto& body) {
  std::unordered_set<std::string> constants;
  for (const auto& each : body.initializer()) constants.insert(each.name());
  for (int i = body.input_size(); i-- > 0;)
    if (constants.contains(body.input(i).name())) body.mutable_input()->DeleteSubrange(i, 1);
  drop_inputs_of_bodies(body);
}

}  // namespace

void TypedFile::write_versions() {
  // New constants of bodies are no inputs of theirs.
  if (model.ir_version() < 4 && !changes.bodies.empty()) {
    model.set_ir_version(4);
    drop_inputs_of_bodies(*model.mutable_graph());
  }
  if (changes.opset == 0) return;
  for (auto& import : *model.mutable_opset_import())
    if (domain_of(import.domain()).empty()) import.set_version(changes.opset);
  // The IR version that came with the opset; older readers would not know the opset either.
  constexpr std::array kFirst{std::pair{24, 12}, std::pair{23, 11}, std::pair{21, 10},
                              std::pair{19, 9},  std::pair{15, 8},  std::pair{0, 7}};
  const int ir = std::ranges::find_if(kFirst, [&](const auto& each) { return changes.opset >= each.first; })->second;
  if (model.ir_version() < ir && model.ir_version() >= 4) model.set_ir_version(ir);
}

void TypedFile::load_external_data(onnx::GraphProto& graph) {
  const auto load = [&](onnx::TensorProto& proto) {
    if (proto.data_location() != onnx::TensorProto::EXTERNAL) return;
    const Tensor value = reader.read(proto, fmt::format("initializer '{}'", proto.name()));
    proto.clear_external_data();
    proto.clear_data_location();
    set_payload(proto, add_payload(value, value.type(), Rounding::kNone));
  };
  for (auto& proto : *graph.mutable_initializer()) load(proto);
  for (auto& node : *graph.mutable_node())
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) load(*attribute.mutable_t());
      if (attribute.has_g()) load_external_data(*attribute.mutable_g());
    }
}

}  // namespace ulpscope::onnx_model
