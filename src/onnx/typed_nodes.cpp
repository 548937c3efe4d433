// The nodes of a typed file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "onnx/element_type.h"
#include "onnx/opset_upgrade.h"
#include "onnx/typed_graph.h"

namespace ulpscope::onnx_model {
namespace {

constexpr const char* kTensorRt = "trt";  ///< The domain of its own operators.

/// Of powers of two, E8M0: the exponent plus 127.
Tensor codes_of_powers(const Tensor& powers) {
  Tensor codes(DataType::kUInt8, powers.shape());
  std::ranges::transform(powers.values<float>(), codes.data<std::uint8_t>(),
                         [](float power) { return static_cast<std::uint8_t>(std::ilogb(power) + 127); });
  return codes;
}

/// Matrices, each transposed.
Tensor turned(const Tensor& values) {
  const Tensor matrices = values.cast(DataType::kFloat32);
  Shape shape = matrices.shape();
  const std::size_t rank = shape.size();
  std::swap(shape[rank - 2], shape[rank - 1]);
  const std::int64_t columns = shape[rank - 2], rows = shape[rank - 1];
  Tensor result(DataType::kFloat32, shape);
  for (std::int64_t first = 0; first < matrices.size(); first += rows * columns)
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t r = 0; r < rows; ++r)
        result.data<float>()[first + c * rows + r] = matrices.data<float>()[first + r * columns + c];
  return result.cast(values.type());
}

}  // namespace

void TypedEdit::write_nodes() {
  for (std::size_t n = 0; n < num_nodes(); ++n)
    file_.report.source_casts += source_node(n).op_type() == "Cast" && domain_of(source_node(n).domain()).empty();
  for (std::size_t index : node_order()) {
    if (!live_[index]) {
      if (is_constant_node(source_node(index))) write_constant_copy(index);
      continue;
    }
    onnx::NodeProto node = source_node(index);
    edit_inputs(index, node);
    edit_outputs(index, node);
    edit_attributes(index, node);
    if (changes_.opset != 0) raise_opset(index, node);
    std::vector<onnx::NodeProto> behind = storing_nodes(index, node);
    nodes_.push_back(std::move(node));
    std::ranges::move(behind, std::back_inserter(nodes_));
  }
  for (std::size_t o = 0; o < network_.outputs.size(); ++o)
    if (network_.tensor(network_.outputs[o]).producer != kNone) name_in(network_.outputs[o], typing_.outputs[o]);
  graph_.clear_node();
  for (auto& node : nodes_) *graph_.add_node() = std::move(node);
}

void TypedEdit::edit_inputs(std::size_t index, onnx::NodeProto& node) {
  const LayerId layer = layer_of_node_[index];
  for_each_read(index,
                [&](int i, TensorId id, const Typing::Read& read) { node.set_input(i, name_of_read(id, read)); });
  for (const auto& [key, value] : parameters_) {
    if (key.first != layer || layer == kNone) continue;
    while (static_cast<std::size_t>(node.input_size()) <= key.second) node.add_input("");
    const auto& reads = typing_.reads[layer];
    const DataType type = reads[std::min(key.second, reads.size() - 1)].type;
    const TensorId original = key.second < network_.layer(layer).inputs.size()
                                  ? network_.layer(layer).inputs[key.second]
                                  : network_.layer(layer).inputs[1];
    const std::string name = file_.fresh(network_.tensor(original).name + "_prepared");
    add_initializer(name, *value, type);
    node.set_input(static_cast<int>(key.second), name);
  }
  for (auto each = quantized_.lower_bound({layer, 0}); layer != kNone && each != quantized_.end(); ++each) {
    if (each->first.first != layer) break;
    const auto input = static_cast<int>(each->first.second);
    const TensorId id = network_.layer(layer).inputs[each->first.second];
    node.set_input(input, each->second->elements ? dequantized_weights(id, *each->second)
                                                 : dequantized_activation(id, *each->second));
  }
  Names renamed;
  for (const std::string& name : captured_values(node)) {
    const TensorId id = tensor(name);
    if (id == kNone || is_constant(id) || !is_float(declared(id))) continue;
    if (std::string now = name_in(id, declared(id)); now != name) renamed[name] = std::move(now);
  }
  if (!renamed.empty()) for_each_body(node, [&](onnx::GraphProto& body) { rename_graph(body, renamed); });
}

void TypedEdit::add_node(const char* op, const std::string& name, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const NodeAttributes& attributes,
                         const char* domain) {
  onnx::NodeProto node;
  node.set_op_type(op);
  if (*domain != '\0') node.set_domain(domain);
  node.set_name(file_.fresh(fmt::format("{}_{}", op, name)));
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  for (const auto& [key, value] : attributes) {
    onnx::AttributeProto& attribute = attribute_of(node, key);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }
  nodes_.push_back(std::move(node));
}

void TypedEdit::add_turn(const std::string& name, const std::string& input, const std::string& output,
                         std::int64_t rank) {
  add_node("Transpose", name, {input}, {output});
  onnx::AttributeProto& order = attribute_of(nodes_.back(), "perm");
  order.set_type(onnx::AttributeProto::INTS);
  for (std::int64_t d = 0; d < rank; ++d) order.add_ints(d < rank - 2 ? d : 2 * rank - 3 - d);
}

std::string TypedEdit::zero_point(DataType type) {
  std::string& result = zeros_[type];
  if (!result.empty()) return result;
  result = file_.fresh(fmt::format("{}_zero_point", name_of(type)));
  add_initializer(result, Tensor::of<float>({}, {0.0f}), type);
  return result;
}

std::string TypedEdit::dequantized_activation(TensorId id, const TypedChanges::Quantized& how) {
  std::string& result = dequantized_[{id, how.type, how.axis, how.block}];
  if (!result.empty()) return result;
  const std::string& name = network_.tensor(id).name;
  const std::string source = name_in(id, DataType::kFloat32);
  const std::string scale = file_.fresh(name + "_scale"),
                    quantized = file_.fresh(fmt::format("{}_{}", name, name_of(how.type)));
  result = file_.fresh(name + "_dequantized");
  if (how.block != 0) {
    dequantize_blocks_of(name, source, quantized, scale, result, how);
  } else {
    add_initializer(scale, how.scales, DataType::kFloat32);
    const std::string zero = zero_point(how.type);
    add_node("QuantizeLinear", name, {source, scale, zero}, {quantized});
    add_node("DequantizeLinear", name, {quantized, scale, zero}, {result});
  }
  ++file_.report.quantized;
  describe_as(name, quantized, how.type);
  describe_as(name, result, DataType::kFloat32);
  return result;
}

/// TensorRT's operators for scales that are found when the model runs.
void TypedEdit::dequantize_blocks_of(const std::string& name, std::string source, const std::string& quantized,
                                     const std::string& scale, const std::string& result,
                                     const TypedChanges::Quantized& how) {
  const std::int64_t format = to_onnx_type(DataType::kFloat8E4M3);
  file_.import_domain(kTensorRt, 1);
  std::string made = result;
  if (how.turns) {
    const std::string lying = std::exchange(source, file_.fresh(name + "_turned"));
    made = file_.fresh(name + "_dequantized_turned");
    add_turn(name, lying, source, how.axis + 2);
  }
  if (!how.second) {
    add_node("TRT_MXFP8DynamicQuantize", name, {source}, {quantized, scale},
             {{"axis", -1}, {"block_size", how.block}, {"output_dtype", format}}, kTensorRt);
    dequantize_by_codes(name, quantized, scale, made, how.block);
  } else {
    const std::string second = file_.fresh(name + "_second_scale"), both = file_.fresh(name + "_scales");
    add_initializer(second, Tensor::of<float>({}, {*how.second}), DataType::kFloat32);
    add_node("TRT_FP4DynamicQuantize", name, {source, second}, {quantized, scale},
             {{"axis", -1}, {"block_size", how.block}, {"scale_type", format}}, kTensorRt);
    add_node("DequantizeLinear", name + "_scales", {scale, second}, {both});
    add_node("DequantizeLinear", name, {quantized, both}, {made}, {{"axis", -1}, {"block_size", how.block}});
  }
  if (how.turns) add_turn(name + "_dequantized", made, result, how.axis + 2);
}

void TypedEdit::dequantize_by_codes(const std::string& name, const std::string& elements, const std::string& codes,
                                    const std::string& result, std::int64_t block) {
  file_.import_domain(kTensorRt, 1);
  add_node("TRT_MXFP8DequantizeLinear", name, {elements, codes}, {result},
           {{"axis", -1}, {"block_size", block}, {"output_dtype", to_onnx_type(DataType::kFloat32)}}, kTensorRt);
}

std::string TypedEdit::dequantized_weights(TensorId id, const TypedChanges::Quantized& how) {
  std::string& result = stored_elements_[{how.elements.raw(), how.axis, how.number}];
  if (!result.empty()) return result;
  const std::string& name = network_.tensor(id).name;
  const std::string elements = file_.fresh(fmt::format("{}_{}", name, name_of(how.type)));
  std::string scale = file_.fresh(name + "_scale");
  result = file_.fresh(name + "_dequantized");
  const auto lying = [&](const Tensor& values) { return how.turns ? turned(values) : values; };
  add_initializer(elements, lying(how.elements), how.type);
  DataType yields = is_float(how.scale_type) ? how.scale_type : DataType::kFloat32;
  if (how.scale_type == DataType::kUInt8) {
    add_initializer(scale, codes_of_powers(lying(how.scales)), how.scale_type);
    dequantize_by_codes(name, elements, scale, result, how.block);
  } else {
    add_initializer(scale, lying(how.scales), how.scale_type);
    // ONNX Runtime folds a Cast of a constant, and runs such weights by MatMulNBits as if it were float32. It refuses
    // to load an output_dtype there, and multiplies out a Cast behind the DequantizeLinear in every run.
    if (yields == DataType::kFloat16 && how.number == DataType::kFloat32) {
      const std::string stored = std::exchange(scale, file_.fresh(name + "_scale_fp32"));
      add_node("Cast", stored, {stored}, {scale}, {{"to", to_onnx_type(how.number)}});
      yields = how.number;
      ++file_.report.casts;
    }
    NodeAttributes attributes;
    if (!how.scales.shape().empty()) attributes.emplace_back("axis", is_float(how.scale_type) ? how.axis : -1);
    if (how.block != 0) attributes.emplace_back("block_size", how.block);
    if (how.second) {
      const std::string second = file_.fresh(name + "_second_scale"), both = file_.fresh(name + "_scales");
      add_initializer(second, Tensor::of<float>({}, {*how.second}), DataType::kFloat32);
      add_node("DequantizeLinear", name + "_scales", {scale, second}, {both});
      scale = both;
    } else if (!is_float(how.scale_type)) {  // Of powers of two, the type of what they multiply is to be said.
      attributes.emplace_back("output_dtype", to_onnx_type(yields));
    }
    add_node("DequantizeLinear", name, {elements, scale}, {result}, attributes);
  }
  if (how.number != yields) {
    const std::string wide = std::exchange(result, file_.fresh(fmt::format("{}_{}", result, short_name(how.number))));
    add_node("Cast", name + "_dequantized", {wide}, {result}, {{"to", to_onnx_type(how.number)}});
    ++file_.report.casts;
  }
  if (how.turns) {
    const std::string made = std::exchange(result, file_.fresh(name + "_turned"));
    add_turn(name + "_dequantized", made, result, how.elements.rank());
  }
  ++file_.report.stored_weights;
  return result;
}

std::vector<onnx::NodeProto> TypedEdit::storing_nodes(std::size_t index, onnx::NodeProto& node) {
  const LayerId layer = layer_of_node_[index];
  if (layer == kNone) return {};
  const auto stored = std::ranges::find_if(changes_.stored, [&](const auto& each) { return each.first == layer; });
  const bool casts = stored != changes_.stored.end();
  if (!casts && std::ranges::find(changes_.copied, layer) == changes_.copied.end()) return {};
  std::vector<onnx::NodeProto> result;
  const auto& outputs = network_.layer(layer).outputs;
  for (int o = 0; o < node.output_size(); ++o) {
    const std::string name = node.output(o);
    // Of several outputs, those that are no floats stay as they are.
    if (name.empty() || (o > 0 && (!casts || declared(outputs[o]) != stored->second))) continue;
    node.set_output(o, file_.fresh(name + "_fp32"));
    onnx::NodeProto& behind = result.emplace_back();
    behind.set_op_type(casts ? "Cast" : "Identity");
    behind.set_name(
        file_.fresh(fmt::format("{}_{}_{}", behind.op_type(), name, casts ? short_name(stored->second) : "fp32")));
    behind.add_input(node.output(o));
    behind.add_output(name);
    if (!casts) continue;
    onnx::AttributeProto& to = attribute_of(behind, "to");
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(to_onnx_type(stored->second));
    ++file_.report.casts;
  }
  return result;
}

void TypedEdit::edit_outputs(std::size_t index, onnx::NodeProto& node) {
  const LayerId layer = layer_of_node_[index];
  for (const auto& [normalization, convolution] : absorbed_)
    if (convolution == layer && layer != kNone)
      node.set_output(0, network_.tensor(network_.layer(normalization).outputs[0]).name);
  for (auto& output : *node.mutable_output())
    if (const TensorId id = tensor(output); id != kNone && !is_in_file(id)) output = name_in(id, DataType::kUndefined);
}

void TypedEdit::edit_attributes(std::size_t index, onnx::NodeProto& node) {
  const LayerId layer = layer_of_node_[index];
  if (layer == kNone || node.output_size() == 0) return;
  for (const auto& [normalization, epsilon] : changes_.epsilons) {
    if (normalization != layer) continue;
    onnx::AttributeProto& attribute = attribute_of(node, "epsilon");
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(epsilon);
  }
  const TensorId output = network_.layer(layer).output(0);
  if (output == kNone || is_constant(output) || written(output) == declared(output)) return;
  if (!domain_of(node.domain()).empty()) return;
  if (node.op_type() == "Cast") attribute_of(node, "to").set_i(to_onnx_type(written(output)));
  if (node.op_type() == "ConstantOfShape") {
    const Tensor value = network_.layer(layer).attributes.has("value")
                             ? network_.layer(layer).attributes.required_tensor("value")
                             : Tensor::of<float>({1}, {0.0F});
    onnx::AttributeProto& attribute = attribute_of(node, "value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = file_.make_tensor("", value, written(output), Rounding::kNone);
  }
}

void TypedEdit::raise_opset(std::size_t index, onnx::NodeProto& node) {
  // Ranks by the names of the source: a cast of the value has another one.
  const auto rank_of = [&](const std::string&) {
    const onnx::NodeProto& source = source_node(index);
    const TensorId id = source.input_size() > 0 ? tensor(source.input(0)) : kNone;
    return id == kNone ? -1 : changes_.ranks[id];
  };
  upgrade(node, file_.opset_of_source(), changes_.opset, rank_of,
          [&](const std::string& wanted, const std::vector<std::int64_t>& values) {
            const std::string name = file_.fresh(wanted);
            add_initializer(name,
                            Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span(values)),
                            DataType::kInt64);
            return name;
          });
}

void TypedEdit::write_constant_copy(std::size_t index) {
  onnx::NodeProto node = source_node(index);
  const TensorId id = tensor(node.output(0));
  const auto found = id == kNone ? variants_.end() : variants_.find(id);
  if (found == variants_.end()) return;
  for (const auto& [variant, name] : found->second) {
    if (name != node.output(0)) continue;
    node.clear_attribute();
    onnx::AttributeProto& attribute = attribute_of(node, "value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = file_.make_tensor("", elements(id), variant.first, variant.second);
    nodes_.push_back(std::move(node));
    --file_.report.removed;
    return;
  }
}

}  // namespace ulpscope::onnx_model
