#include "engine/specialization.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "graph/folding.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

/// Constants made of shapes that are larger than 256 MiB are computed in every run, instead of being kept per shapes.
constexpr FoldingLimits kFolded{.shapes = std::int64_t{1} << 26};

bool is_lowerable_float(DataType type) { return is_floating(type) && type != DataType::kFloat64; }

/// Integers that are values in another form: what quantization makes, products of it, and what moves or adds these.
std::vector<char> quantized_values(const Network& network, const std::vector<DataType>& types) {
  constexpr std::array<std::string_view, 6> kMakers = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv",
                                                       "QLinearMatMul",  "MatMulInteger",         "ConvInteger"};
  std::vector<char> quantized(network.tensors.size(), 0);
  for (const Layer& layer : network.layers) {
    const bool makes = std::ranges::find(kMakers, layer.op->name) != kMakers.end();
    const bool keeps = (layer.op->precision == PrecisionRule::kMovement || layer.op->kind == OpKind::kPointwise) &&
                       std::ranges::any_of(layer.inputs, [&](TensorId id) {
                         return id != kNone && quantized[static_cast<std::size_t>(id)];
                       });
    for (TensorId id : layer.outputs)
      if (id != kNone && (makes || keeps) && !is_floating(types[static_cast<std::size_t>(id)]) &&
          types[static_cast<std::size_t>(id)] != DataType::kBool)
        quantized[static_cast<std::size_t>(id)] = 1;
  }
  return quantized;
}

}  // namespace

std::vector<char> numeric_layers(const Network& network, const std::vector<DataType>& types) {
  const auto type = [&](TensorId id) { return types[static_cast<std::size_t>(id)]; };
  std::vector<char> reaches(network.tensors.size(), 0);
  for (TensorId id : network.outputs) reaches[static_cast<std::size_t>(id)] = 1;
  const std::vector<char> quantized = quantized_values(network, types);
  std::vector<char> numeric(network.layers.size(), 0);
  for (std::size_t l = network.layers.size(); l-- > 0;) {
    const Layer& layer = network.layers[l];
    bool useful = false, floats = false, decides = false;
    for (TensorId id : layer.outputs) {
      if (id == kNone || !reaches[static_cast<std::size_t>(id)]) continue;
      useful = true;
      floats |= is_lowerable_float(type(id));
      decides |= type(id) == DataType::kBool;
    }
    if (!useful) continue;
    const bool reads_floats = std::any_of(layer.inputs.begin(), layer.inputs.end(),
                                          [&](TensorId id) { return id != kNone && is_lowerable_float(type(id)); });
    const bool computes = layer.op->precision == PrecisionRule::kCompute || layer.op->kind == OpKind::kControl;
    numeric[l] = computes && (floats || (decides && reads_floats));
    // Values flow on through everything that yields floats. An integer (an index, a class, a length) passes on only
    // when it is itself handed out: then the floats that it was selected by are results, too. Or when it is quantized.
    const bool dequantizes = layer.op->function == Function::kDequantize;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const TensorId id = layer.inputs[i];
      if (id == kNone) continue;
      // What a layer computes with are its operands, whatever they are called: bounds of a Clip, scales of a norm.
      const bool parameter = (layer.op->weights >> i & 1u) != 0 &&
                             (layer.op->precision != PrecisionRule::kCompute || ops::is_resize(layer));
      if (!parameter &&
          (layer.op->kind == OpKind::kControl || is_lowerable_float(type(id)) || type(id) == DataType::kBool ||
           !floats || (dequantizes && i == 0) || quantized[static_cast<std::size_t>(id)]))
        reaches[static_cast<std::size_t>(id)] = 1;
    }
  }
  return numeric;
}

std::string constants_of(const Specialization& spec) { return fmt::format("@{};", spec.id); }

std::shared_ptr<const Specialization> specialize(const Network& network, std::vector<Shape> input_shapes,
                                                 const Specialization* other) {
  static std::atomic<std::uint64_t> next_id{1};
  auto result = std::make_shared<Specialization>();
  result->id = next_id++;
  result->network = &network;
  std::vector<Tensor> shared;
  if (other != nullptr) {
    shared = other->inferred.values;
    for (std::size_t id = 0; id < shared.size(); ++id)
      if (other->shape_dependent[id]) shared[id] = {};
  }
  result->inferred = infer(network, input_shapes, kFolded, shared);
  result->input_shapes = std::move(input_shapes);
  result->consumers = network.consumers();
  result->output.assign(network.tensors.size(), 0);
  for (TensorId id : network.outputs) result->output[static_cast<std::size_t>(id)] = 1;
  result->numeric = numeric_layers(network, result->inferred.types);
  result->folded.assign(network.layers.size(), 0);
  result->shape_dependent.assign(network.tensors.size(), 0);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const Layer& layer = network.layers[l];
    result->folded[l] = std::all_of(layer.outputs.begin(), layer.outputs.end(),
                                    [&](TensorId id) { return id == kNone || result->is_constant(id); });
    if (result->folded[l]) {
      result->numeric[l] = 0;
      for (TensorId id : layer.inputs)
        if (id != kNone) std::erase(result->consumers[static_cast<std::size_t>(id)], static_cast<LayerId>(l));
    }
    // A constant that does not come from constants alone comes from shapes (Shape, Size and what is computed of them).
    bool from_shapes = false;
    for (TensorId id : layer.inputs)
      from_shapes |= id != kNone && (!result->is_constant(id) || result->shape_dependent[static_cast<std::size_t>(id)]);
    for (TensorId id : layer.outputs)
      if (id != kNone && from_shapes && result->is_constant(id))
        result->shape_dependent[static_cast<std::size_t>(id)] = 1;
  }
  return result;
}

}  // namespace ulpscope
