#include "graph/assignment.h"

#include <algorithm>
#include <array>

namespace ulpscope {

std::string_view name_of(Precision precision) noexcept {
  static constexpr std::array<std::string_view, 6> kNames{"fp32", "tf32", "fp16", "bf16", "fp8", "int8"};
  return kNames[static_cast<std::size_t>(precision)];
}

std::optional<Precision> precision_named(std::string_view name) noexcept {
  for (int p = 0; p <= static_cast<int>(Precision::kINT8); ++p)
    if (name_of(static_cast<Precision>(p)) == name) return static_cast<Precision>(p);
  return std::nullopt;
}

std::optional<Precision> precision_from_type(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
      return Precision::kFP32;
    case DataType::kFloat16:
      return Precision::kFP16;
    case DataType::kBFloat16:
      return Precision::kBF16;
    case DataType::kFloat8E4M3:
      return Precision::kFP8;
    case DataType::kInt8:
      return Precision::kINT8;
    default:
      return std::nullopt;
  }
}

DataType storage_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::kFP16:
      return DataType::kFloat16;
    case Precision::kBF16:
      return DataType::kBFloat16;
    default:
      return DataType::kFloat32;
  }
}

Rounding rounding_of(Precision precision) noexcept {
  switch (precision) {
    case Precision::kTF32:
      return Rounding::kTF32;
    case Precision::kFP16:
      return Rounding::kF16;
    case Precision::kBF16:
      return Rounding::kBF16;
    default:
      return Rounding::kNone;
  }
}

bool is_exact(DataType storage, Rounding rounding) noexcept {
  if (rounding == Rounding::kNone) return true;
  const NumericFormat* stored = format_of(storage);
  return stored != nullptr && holds(format_of(format_of(rounding)), *stored);
}

namespace {

std::optional<Encoding> stored_as(const Assignment& assignment, TensorId id) {
  const NumericFormat* format = id == kNone ? nullptr : format_of(assignment.storage[id]);
  return format == nullptr ? std::nullopt : std::optional(Encoding{format->id});
}

}  // namespace

std::optional<Encoding> operand_encoding(const Network& network, const Assignment& assignment, LayerId layer,
                                         std::size_t input) {
  const Layer& l = network.layer(layer);
  const TensorId id = l.input(input);
  std::optional<Encoding> stored = stored_as(assignment, id);
  if (!stored || !format_of(stored->format).is_float || l.op->precision != PrecisionRule::kCompute) return stored;
  const Precision precision = assignment.precision[layer];
  if (precision == Precision::kINT8 && input < 2) {
    const bool scaled = !assignment.scale.empty() && assignment.scale[id] != 0;
    if (scaled) return Encoding{.format = Format::kInt8, .granularity = Granularity::kTensor};
    if (network.tensor(id).value)
      return Encoding{.format = Format::kInt8, .granularity = Granularity::kChannel, .axis = -1};
  }
  const bool rounds = precision != Precision::kTF32 || l.op->kind == OpKind::kContraction;
  const Rounding rounding = rounds ? rounding_of(precision) : Rounding::kNone;
  if (!is_exact(assignment.storage[id], rounding)) stored->format = format_of(rounding);
  return stored;
}

std::optional<Encoding> output_encoding(const Network& network, const Assignment& assignment, LayerId layer,
                                        std::size_t output) {
  return stored_as(assignment, network.layer(layer).output(output));
}

namespace {

int width(DataType type) noexcept { return static_cast<int>(size_of(type)); }

/// The widest float type among the inputs; of float16 and bfloat16 together, which hold different values, float32.
DataType widest_input(const Layer& layer, const InferredNetwork& inferred, const Assignment& assignment) {
  DataType widest = DataType::kUndefined;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const TensorId id = layer.inputs[i];
    if (id == kNone || layer.op->is_weight(i)) continue;
    const DataType storage = assignment.storage[id];
    // A constant beside computed values has no say: it is prepared in whatever type the others have.
    const bool constant = static_cast<bool>(inferred.values[id]);
    if (!is_floating(storage) || (constant && layer.inputs.size() > 1)) continue;
    if (widest == DataType::kUndefined || width(storage) > width(widest))
      widest = storage;
    else if (width(storage) == width(widest) && storage != widest)
      widest = DataType::kFloat32;
  }
  return widest;
}

/// Float types that the engine chooses among for what is declared as this.
bool is_chosen(DataType declared) {
  return is_floating(declared) && declared != DataType::kFloat64 && !is_storage_only(declared);
}

/// What the network asks for of one output; kUndefined: nothing.
DataType asked_type(const Layer& layer, std::size_t output, std::optional<DataType> precision) {
  if (const auto type = layer.output_type(output); type && is_floating(*type)) return *type;
  if (!precision) return DataType::kUndefined;
  // Integers have no meaning without the layers around: a request for int8 moves what the input holds.
  const auto moved = precision_from_type(*precision);
  if (layer.op->precision == PrecisionRule::kMovement && moved && *moved != Precision::kINT8) return storage_of(*moved);
  if (layer.op->kind == OpKind::kConstant && is_floating(*precision)) return *precision;
  return DataType::kUndefined;
}

void collect_requests(const Network& network, const InferredNetwork& inferred, Assignment& assignment,
                      const LayerTypes* requested) {
  for (const auto& [l, layer] : network.layers.items())
    for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
      const TensorId id = layer.outputs[o];
      if (id == kNone || !is_chosen(inferred.types[id])) continue;
      const DataType type = asked_type(layer, o, requested != nullptr ? (*requested)[l] : layer.precision);
      if (type == DataType::kUndefined) continue;
      assignment.asked[id] = type;
      assignment.pinned[id] = layer.output_type(o) == type ? 1 : 0;
    }
}

}  // namespace

void derive_storage(const Network& network, const InferredNetwork& inferred, bool constraints_hold, bool strongly_typed,
                    Assignment& assignment, const LayerTypes* requested) {
  assignment.storage = inferred.types;
  assignment.pinned.assign(inferred.types.size(), 0);
  assignment.asked.assign(inferred.types.size(), DataType::kUndefined);
  if (strongly_typed) return;
  if (constraints_hold) collect_requests(network, inferred, assignment, requested);
  update_storage(network, inferred, assignment);
}

void update_storage(const Network& network, const InferredNetwork& inferred, Assignment& assignment) {
  assignment.storage = inferred.types;
  assignment.pinned.resize(inferred.types.size(), 0);
  assignment.asked.resize(inferred.types.size(), DataType::kUndefined);
  for (const auto& [l, layer] : network.layers.items())
    for (const TensorId id : present(layer.outputs)) {
      DataType& storage = assignment.storage[id];
      const DataType declared = storage;
      if (!is_chosen(declared)) continue;
      if (assignment.asked[id] != DataType::kUndefined) {
        storage = assignment.asked[id];
      } else if (layer.op->precision == PrecisionRule::kMovement) {
        const DataType followed = widest_input(layer, inferred, assignment);
        if (followed != DataType::kUndefined && width(followed) < width(declared)) storage = followed;
      } else if (layer.op->precision == PrecisionRule::kCompute && declared == DataType::kFloat32) {
        storage = assignment.stored_by(l);
      }
    }
}

Assignment assignment_of_body(const Assignment& around, const Body& body, const InferredNetwork& inferred,
                              bool constraints_hold, bool strongly_typed) {
  const Network& network = *body.graph->network;
  const std::size_t layers = network.num_all_layers();
  Assignment result;
  result.precision = part_of(around.precision, body, layers);
  result.reason = part_of(around.reason, body, layers);
  if (!around.asked_in_bodies.empty()) result.asked_in_bodies = part_of(around.asked_in_bodies, body, layers);
  derive_storage(network, inferred, constraints_hold, strongly_typed, result,
                 result.asked_in_bodies.empty() ? nullptr : &result.asked_in_bodies);
  return result;
}

}  // namespace ulpscope
