#include "engine/specialization.h"

#include <algorithm>
#include <cstdint>

#include "graph/folding.h"
#include "ops/forms.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Constants made of shapes that are larger than 256 MiB are computed in every run, instead of being kept per shapes.
constexpr FoldingLimits kFolded{.shapes = std::int64_t{1} << 26};

bool is_lowerable_float(DataType type) { return is_floating(type) && type != DataType::kFloat64; }

/// Integers that are values in another form: what quantization makes, products of it, and what moves or adds these.
IdMap<TensorId, char> quantized_values(const Network& network, const IdMap<TensorId, DataType>& types) {
  IdMap<TensorId, char> quantized(network.tensors.size(), 0);
  for (const Layer& layer : network.layers) {
    const bool keeps = (layer.op->precision == PrecisionRule::kMovement || layer.op->kind == OpKind::kPointwise) &&
                       std::ranges::any_of(present(layer.inputs), [&](TensorId id) { return quantized[id]; });
    for (TensorId id : present(layer.outputs))
      if ((layer.op->yields_quantized || keeps) && !is_floating(types[id]) && types[id] != DataType::kBool)
        quantized[id] = 1;
  }
  return quantized;
}

}  // namespace

IdMap<LayerId, char> numeric_layers(const Network& network, const IdMap<TensorId, DataType>& types) {
  const auto type = [&](TensorId id) { return types[id]; };
  IdMap<TensorId, char> reaches(network.tensors.size(), 0);
  for (TensorId id : network.outputs) reaches[id] = 1;
  const auto quantized = quantized_values(network, types);
  IdMap<LayerId, char> numeric(network.layers.size(), 0);
  for (LayerId l : std::views::reverse(network.layers.ids())) {
    const Layer& layer = network.layers[l];
    bool useful = false, floats = false, lowerable = false, decides = false;
    for (TensorId id : present(layer.outputs)) {
      if (!reaches[id]) continue;
      useful = true;
      floats |= is_floating(type(id));
      lowerable |= is_lowerable_float(type(id));
      decides |= type(id) == DataType::kBool;
    }
    if (!useful) continue;
    const bool reads_floats =
        std::ranges::any_of(present(layer.inputs), [&](TensorId id) { return is_lowerable_float(type(id)); });
    const bool computes = layer.op->precision == PrecisionRule::kCompute || layer.op->kind == OpKind::kControl;
    numeric[l] = computes && (lowerable || (decides && reads_floats));
    // Values flow on through everything that yields floats. An integer (an index, a class, a length) passes on only
    // when it is itself an output: then the floats that it was selected by are results, too. Or when it is quantized.
    const bool dequantizes = layer.op->function == Function::kDequantize;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const TensorId id = layer.inputs[i];
      if (id == kNone) continue;
      // What a layer computes with are its operands, whatever they are called: bounds of a Clip, scales of a norm.
      // So is the value that a Pad adds.
      const bool moved = layer.op->precision == PrecisionRule::kMovement && is_floating(type(id));
      const bool parameter =
          moved ? layer.op->is_parameter(i)
                : layer.op->is_weight(i) && (layer.op->precision != PrecisionRule::kCompute || ops::is_resize(layer));
      if (!parameter && (layer.op->kind == OpKind::kControl || is_floating(type(id)) || type(id) == DataType::kBool ||
                         !floats || (dequantizes && i == 0) || quantized[id]))
        reaches[id] = 1;
    }
  }
  return numeric;
}

std::vector<const Tensor*> Specialization::known_inputs(const Layer& layer) const {
  std::vector<const Tensor*> values;
  for (TensorId id : layer.inputs) values.push_back(id != kNone && is_constant(id) ? &value(id) : nullptr);
  return values;
}

namespace {

std::shared_ptr<Specialization> specialize_for(const Network& network, const std::vector<std::optional<Shape>>& shapes,
                                               const Specialization* other);

/// A body that does not fit the shapes may never run: no error yet.
std::shared_ptr<const Specialization> specialize_body(const Specialization& spec, const Body& body,
                                                      const Specialization* other) {
  auto shapes = body_input_shapes(*spec.network, spec.inferred.shapes, body);
  for (bool known : {true, false}) {
    if (!known) std::ranges::fill(shapes, std::nullopt);
    try {
      return specialize_for(*body.graph->network, shapes, other);
    } catch (const Error&) {
    }
  }
  return nullptr;
}

/// A constant vector along the output channels of a product of this shape.
bool is_channel_vector(const Specialization& spec, const Layer& product, TensorId id) {
  if (id == kNone || !spec.is_constant(id) || spec.type(id) != spec.type(product.outputs[0])) return false;
  const Shape& output = *spec.shape(product.outputs[0]);
  const Shape& shape = spec.value(id).shape();
  if (shape.empty() || shape.size() > output.size() || output.size() < 2) return false;
  const bool convolution = ops::is_convolution(product);
  const std::size_t channel = convolution ? 1 : output.size() - 1;
  const std::size_t offset = output.size() - shape.size();
  if (channel < offset) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != (d + offset == channel ? output[channel] : 1)) return false;
  return true;
}

/// The product whose output this Add has on one side, with a constant vector along its channels on the other; or none.
LayerId biased_product(const Specialization& spec, const Layer& add) {
  if (add.op->function != Function::kAdd || add.inputs.size() != 2) return kNone;
  for (std::size_t side = 0; side < 2; ++side) {
    const TensorId x = add.inputs[side];
    if (x == kNone || spec.is_constant(x)) continue;
    const LayerId producer = spec.network->tensor(x).producer;
    if (producer == kNone || !is_product(spec.network->layer(producer).op->function) || !spec.shape(x) ||
        !spec.shape(add.outputs[0]) || *spec.shape(x) != *spec.shape(add.outputs[0]))
      continue;
    if (is_channel_vector(spec, spec.network->layer(producer), add.inputs[1 - side])) return producer;
  }
  return kNone;
}

void find_biases(Specialization& spec) {
  const Network& network = *spec.network;
  spec.biased.assign(network.layers.size(), kNone);
  spec.bias.assign(network.layers.size(), kNone);
  for (const auto& [l, layer] : network.layers.items()) {
    const LayerId product = spec.biased[l] = biased_product(spec, layer);
    if (product == kNone) continue;
    const TensorId output = network.layer(product).outputs[0];
    if (!spec.output[output] && spec.consumers[output].size() == 1) spec.bias[product] = l;
  }
}

std::shared_ptr<Specialization> specialize_for(const Network& network, const std::vector<std::optional<Shape>>& shapes,
                                               const Specialization* other) {
  auto result = std::make_shared<Specialization>();
  result->network = &network;
  IdMap<TensorId, Tensor> shared;
  if (other != nullptr) {
    shared = other->inferred.values;
    for (TensorId id : shared.ids())
      if (other->shape_dependent[id]) shared[id] = {};
  }
  result->inferred = infer(network, shapes, kFolded, shared);
  result->consumers = network.consumers();
  result->output.assign(network.tensors.size(), 0);
  for (TensorId id : network.outputs) result->output[id] = 1;
  result->numeric = numeric_layers(network, result->inferred.types);
  result->folded.assign(network.layers.size(), 0);
  result->shape_dependent.assign(network.tensors.size(), 0);
  for (const auto& [l, layer] : network.layers.items()) {
    result->folded[l] =
        std::ranges::all_of(present(layer.outputs), [&](TensorId id) { return result->is_constant(id); });
    if (result->folded[l]) {
      result->numeric[l] = 0;
      for (TensorId id : present(layer.inputs)) std::erase(result->consumers[id], l);
    }
    // A constant that does not come from constants alone comes from shapes (Shape, Size and what is computed of them).
    bool from_shapes = false;
    for (TensorId id : layer.inputs)
      from_shapes |= id != kNone && (!result->is_constant(id) || result->shape_dependent[id]);
    for (TensorId id : present(layer.outputs))
      if (from_shapes && result->is_constant(id)) result->shape_dependent[id] = 1;
  }
  find_biases(*result);
  for (const Body& body : network.bodies()) {
    const Specialization* same = nullptr;
    if (other != nullptr)
      for (const auto& each : other->bodies)
        if (each != nullptr && each->network == body.graph->network.get()) same = each.get();
    result->bodies.push_back(specialize_body(*result, body, same));
  }
  return result;
}

void add_layers(const Specialization& spec, std::int32_t first, LayerId holder, std::vector<LayerPlace>& result) {
  const std::vector<Body> bodies = spec.network->bodies();
  std::size_t next = 0;
  for (LayerId l : spec.network->layers.ids()) {
    const LayerId id(first + l.number());
    result.push_back({id, holder, &spec, l});
    for (; next < bodies.size() && bodies[next].holder == l; ++next)
      if (spec.bodies[next] != nullptr) add_layers(*spec.bodies[next], first + bodies[next].first.number(), id, result);
  }
}

}  // namespace

std::vector<LayerPlace> all_layers(const Specialization& spec) {
  std::vector<LayerPlace> result;
  add_layers(spec, 0, kNone, result);
  return result;
}

std::shared_ptr<const Specialization> specialize(const Network& network, std::vector<Shape> input_shapes,
                                                 const Specialization* other) {
  auto result =
      naming_file(network, [&] { return specialize_for(network, {input_shapes.begin(), input_shapes.end()}, other); });
  result->input_shapes = std::move(input_shapes);
  return result;
}

}  // namespace ulpscope
