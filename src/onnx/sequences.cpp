#include "onnx/sequences.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/messages.h"
#include "onnx/graph_order.h"

namespace ulpscope::onnx_model {
namespace {

std::int64_t integer_attribute(const onnx::NodeProto& node, std::string_view name, std::int64_t otherwise) {
  const onnx::AttributeProto* found = find_attribute(node, name);
  return found == nullptr ? otherwise : found->i();
}

void set_integer(onnx::NodeProto& node, const char* name, std::int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

void set_integers(onnx::NodeProto& node, const char* name, const std::vector<std::int64_t>& values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Assign(values.begin(), values.end());
}

bool has_input(const onnx::NodeProto& node, int i) { return node.input_size() > i && !node.input(i).empty(); }

std::int64_t opset_of(const FlatNode& node) {
  const auto found = node.opsets->find("");
  return found == node.opsets->end() ? 1 : found->second;
}

/// Of all SequenceMaps of a model, which may lie in each other's bodies.
constexpr std::size_t kMaxMappedNodes = 1u << 20;

/// Since then, axes and parts are inputs.
constexpr std::int64_t kAxesAreInputs = 13;

}  // namespace

void SequenceResolver::fail(const onnx::NodeProto& node, const std::string& expected) const {
  throw unsupported(
      "{}: node '{}' ({}): expected {}; sequences whose tensors are not known while the model is read are not "
      "supported; try the model with the shapes that onnx.shape_inference finds, or --trt-outputs with names of "
      "tensors ahead of it",
      where_, node_name(node), node.op_type(), expected);
}

std::optional<std::vector<std::string>> SequenceResolver::tensors_of(const std::string& value) const {
  for (const auto* values : {&wholes_, &sequences_, &maps_})
    if (const auto found = values->find(value); found != values->end()) return found->second;
  return std::nullopt;
}

void SequenceResolver::run(std::vector<FlatNode>& nodes, const std::string& where) {
  where_ = where;
  made_.clear();
  for (const FlatNode& node : nodes) take(node);
  nodes = std::move(made_);
}

void SequenceResolver::take(const FlatNode& node) {
  if (replace(node)) return;
  for (const std::string& name : values_read(*node.proto))
    if (tensors_of(name)) fail(*node.proto, fmt::format("tensors, got the sequence, map or optional '{}'", name));
  made_.push_back(node);
}

const SequenceResolver::Tensors& SequenceResolver::read(const onnx::NodeProto& node) const {
  const auto found = has_input(node, 0) ? sequences_.find(node.input(0)) : sequences_.end();
  if (found == sequences_.end()) fail(node, "a sequence that nodes ahead of it make of tensors");
  return found->second;
}

std::optional<std::size_t> SequenceResolver::position(const onnx::NodeProto& node, int input, std::size_t size,
                                                      bool may_be_end) const {
  if (!has_input(node, input)) return std::nullopt;
  const auto values = known_.integers(node.input(input));
  if (!values || values->size() != 1) fail(node, fmt::format("a constant as position, got '{}'", node.input(input)));
  const auto count = static_cast<std::int64_t>(size);
  std::int64_t at = values->front();
  if (at < 0) at += count;
  if (at < 0 || at > count - (may_be_end ? 0 : 1))
    fail(node, fmt::format("a position in a sequence of {}, got {}", size, values->front()));
  return static_cast<std::size_t>(at);
}

std::string SequenceResolver::constant(const FlatNode& like, const std::string& name,
                                       const std::vector<std::int64_t>& values) {
  onnx::NodeProto& node = add(like, "Constant", {}, {name});
  node.set_name(name);
  set_integers(node, "value_ints", values);
  return name;
}

onnx::NodeProto& SequenceResolver::add(const FlatNode& like, const char* op, const Tensors& inputs,
                                       const Tensors& outputs) {
  onnx::NodeProto& node = copies_.emplace_back();
  node.set_op_type(op);
  node.set_name(node_name(*like.proto));
  node.mutable_input()->Assign(inputs.begin(), inputs.end());
  node.mutable_output()->Assign(outputs.begin(), outputs.end());
  made_.push_back({&node, like.opsets});
  return node;
}

bool SequenceResolver::add_scalar(const FlatNode& node, onnx::TensorProto value) {
  onnx::AttributeProto& attribute = *add(node, "Constant", {}, {node.proto->output(0)}).add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  *attribute.mutable_t() = std::move(value);
  return true;
}

bool SequenceResolver::replace(const FlatNode& flat) {
  const onnx::NodeProto& node = *flat.proto;
  const std::string& op = node.op_type();
  if (node.output_size() == 0) return false;
  if (node.domain() == "ai.onnx.ml" && op == "ZipMap") {
    if (!has_input(node, 0)) return false;
    maps_[node.output(0)] = {node.input(0)};
    return true;
  }
  if (!domain_of(node.domain()).empty()) return false;
  if (op == "SequenceEmpty") return sequences_[node.output(0)] = {}, true;
  if (op == "SequenceConstruct") return sequences_[node.output(0)] = {node.input().begin(), node.input().end()}, true;
  if (op == "Identity") return has_input(node, 0) && pass_on(node);
  if (op.starts_with("Optional")) return follow_optional(flat);
  if (op == "SequenceInsert" || op == "SequenceErase") {
    Tensors changed = read(node);
    const bool inserts = op == "SequenceInsert";
    if (inserts && !has_input(node, 1)) fail(node, "a tensor to insert");
    const std::size_t size = changed.size();
    if (!inserts && size == 0) fail(node, "a sequence with tensors");
    const std::size_t at = position(node, inserts ? 2 : 1, size, inserts).value_or(inserts ? size : size - 1);
    if (inserts)
      changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(at), node.input(1));
    else
      changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
    return sequences_[node.output(0)] = std::move(changed), true;
  }
  if (op == "SequenceAt") {
    const Tensors& tensors = read(node);
    const auto at = position(node, 1, tensors.size(), false);
    if (!at) fail(node, "a position");
    return add(flat, "Identity", {tensors[*at]}, {node.output(0)}), true;
  }
  if (op == "SequenceLength") {
    onnx::TensorProto length;
    length.set_data_type(onnx::TensorProto::INT64);
    length.add_int64_data(static_cast<std::int64_t>(read(node).size()));
    return add_scalar(flat, std::move(length));
  }
  if (op == "SequenceMap") return map(flat);
  if (op == "ConcatFromSequence") return concatenate(flat);
  if (op == "SplitToSequence") return split(flat);
  return false;
}

/// True if the node's output is the sequence, map or optional that its input is.
bool SequenceResolver::pass_on(const onnx::NodeProto& node) {
  if (!tensors_of(node.input(0))) return false;
  for (auto* values : {&sequences_, &wholes_, &maps_})
    if (const auto found = values->find(node.input(0)); found != values->end()) {
      Tensors same = found->second;
      (*values)[node.output(0)] = std::move(same);
    }
  return true;
}

bool SequenceResolver::follow_optional(const FlatNode& flat) {
  const onnx::NodeProto& node = *flat.proto;
  const auto known = has_input(node, 0) ? maps_.find(node.input(0)) : maps_.end();
  const bool present = has_input(node, 0) && (known == maps_.end() || !known->second.empty());
  if (node.op_type() == "OptionalHasElement") {
    onnx::TensorProto has;
    has.set_data_type(onnx::TensorProto::BOOL);
    has.add_int32_data(present ? 1 : 0);
    return add_scalar(flat, std::move(has));
  }
  if (!present && node.op_type() == "OptionalGetElement") fail(node, "an optional with an element");
  if (!present) return maps_[node.output(0)] = {}, true;
  if (!pass_on(node)) add(flat, "Identity", {node.input(0)}, {node.output(0)});
  return true;
}

/// The body's nodes, once for each tensor of the first sequence.
bool SequenceResolver::map(const FlatNode& flat) {
  const onnx::NodeProto& node = *flat.proto;
  const onnx::AttributeProto* const attribute = find_attribute(node, "body");
  if (attribute == nullptr || !attribute->has_g()) return false;
  const onnx::GraphProto& body = attribute->g();
  const std::size_t size = read(node).size();
  if (body.input_size() != node.input_size() || body.output_size() < node.output_size())
    fail(node, fmt::format("a body with {} inputs and {} outputs, got {} and {}", node.input_size(), node.output_size(),
                           body.input_size(), body.output_size()));
  for (const std::string& input : node.input())
    if (const auto found = sequences_.find(input); found != sequences_.end() && found->second.size() != size)
      fail(node, fmt::format("sequences of {}, got one of {}: '{}'", size, found->second.size(), input));
  Names names;
  for (const onnx::TensorProto& initializer : body.initializer()) {
    const std::string name = fmt::format("{}/{}", node_name(node), initializer.name());
    names[initializer.name()] = name;
    onnx::NodeProto& constant = add(flat, "Constant", {}, {name});
    constant.set_name(name);
    onnx::AttributeProto& value = *constant.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    *value.mutable_t() = initializer;
  }
  std::vector<Tensors> results(static_cast<std::size_t>(node.output_size()));
  for (std::size_t i = 0; i < size; ++i) {
    const Tensors outputs = map_entry(flat, body, i, names);
    for (std::size_t k = 0; k < results.size(); ++k) results[k].push_back(outputs[k]);
  }
  for (std::size_t k = 0; k < results.size(); ++k) sequences_[node.output(static_cast<int>(k))] = std::move(results[k]);
  return true;
}

/// The outputs of the body for one tensor. `names`: of the body's initializers.
SequenceResolver::Tensors SequenceResolver::map_entry(const FlatNode& flat, const onnx::GraphProto& body,
                                                      std::size_t entry, Names names) {
  const onnx::NodeProto& node = *flat.proto;
  const std::string prefix = fmt::format("{}/{}/", node_name(node), entry);
  for (int i = 0; i < node.input_size(); ++i) {
    const auto sequence = sequences_.find(node.input(i));
    names[body.input(i).name()] = sequence == sequences_.end() ? node.input(i) : sequence->second[entry];
  }
  for (const onnx::NodeProto& each : body.node())
    for (const std::string& output : each.output())
      if (!output.empty()) names[output] = prefix + output;
  for (const onnx::NodeProto& each : body.node()) {
    if (++mapped_ > kMaxMappedNodes) fail(node, fmt::format("at most {} nodes of bodies", kMaxMappedNodes));
    onnx::NodeProto& copy = copies_.emplace_back(each);
    if (copy.name().empty()) copy.set_name(node_name(each));
    rename_node(copy, names, prefix);
    take({&copy, flat.opsets});
  }
  Tensors outputs;
  for (const auto& output : body.output()) {
    const auto found = names.find(output.name());
    outputs.push_back(found == names.end() ? output.name() : found->second);
  }
  return outputs;
}

bool SequenceResolver::concatenate(const FlatNode& flat) {
  const onnx::NodeProto& node = *flat.proto;
  Tensors tensors = read(node);
  if (tensors.empty()) fail(node, "a sequence with tensors");
  const std::int64_t axis = integer_attribute(node, "axis", 0);
  if (integer_attribute(node, "new_axis", 0) != 0) {
    const std::string base = node_name(node);
    const bool as_input = opset_of(flat) >= kAxesAreInputs;
    const std::string axes = as_input ? constant(flat, base + "/axes", {axis}) : "";
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string name = fmt::format("{}/{}", base, i);
      onnx::NodeProto& made =
          add(flat, "Unsqueeze", as_input ? Tensors{tensors[i], axes} : Tensors{tensors[i]}, {name});
      made.set_name(name);
      if (!as_input) set_integers(made, "axes", {axis});
      tensors[i] = name;
    }
  }
  set_integer(add(flat, "Concat", tensors, {node.output(0)}), "axis", axis);
  return true;
}

bool SequenceResolver::split(const FlatNode& flat) {
  const onnx::NodeProto& node = *flat.proto;
  if (!has_input(node, 0)) fail(node, "a tensor");
  const std::int64_t axis = integer_attribute(node, "axis", 0);
  const bool drops = !has_input(node, 1) && integer_attribute(node, "keepdims", 1) == 0;
  std::vector<std::int64_t> parts;
  const auto sizes = has_input(node, 1) ? known_.integers(node.input(1)) : std::vector<std::int64_t>{1};
  if (!sizes) fail(node, fmt::format("constant lengths, got '{}'", node.input(1)));
  parts = *sizes;
  if (parts.size() == 1) {
    // One length: as many parts as there are. A list of one looks the same, and is the whole then.
    const auto dimension = known_.dimension(node.input(0), axis);
    if (!dimension || parts.front() < 1)
      fail(node, fmt::format("dimension {} of '{}' to be known, and lengths of 1 and more", axis, node.input(0)));
    const std::int64_t length = parts.front();
    parts.clear();
    for (std::int64_t at = 0; at < *dimension; at += length) parts.push_back(std::min(length, *dimension - at));
  }
  const std::string base = node_name(node);
  Tensors pieces;
  for (std::size_t i = 0; i < parts.size(); ++i) pieces.push_back(fmt::format("{}/{}", base, i));
  const bool as_input = opset_of(flat) >= kAxesAreInputs;
  if (!parts.empty()) {
    Tensors inputs{node.input(0)};
    if (as_input) inputs.push_back(constant(flat, base + "/lengths", parts));
    onnx::NodeProto& made = add(flat, "Split", inputs, pieces);
    set_integer(made, "axis", axis);
    if (!as_input) set_integers(made, "split", parts);
  }
  if (drops) {
    const std::string axes = as_input ? constant(flat, base + "/axes", {axis}) : "";
    for (std::string& piece : pieces) {
      const std::string name = piece + "/squeezed";
      onnx::NodeProto& made = add(flat, "Squeeze", as_input ? Tensors{piece, axes} : Tensors{piece}, {name});
      made.set_name(name);
      if (!as_input) set_integers(made, "axes", {axis});
      piece = name;
    }
  }
  sequences_[node.output(0)] = std::move(pieces);
  wholes_[node.output(0)] = {node.input(0)};
  return true;
}

}  // namespace ulpscope::onnx_model
