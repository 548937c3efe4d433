#include "graph/assignment.h"

#include "graph/stashed_outputs.h"

namespace ulpscope {

bool is_exact(DataType storage, Rounding rounding) noexcept {
  if (rounding == Rounding::kNone) return true;
  const NumericFormat* stored = format_of(storage);
  return stored != nullptr && holds(format_of(format_of(rounding)), *stored);
}

Precision precision_in(const Layer& layer, Precision asked) noexcept {
  // What an If, Loop or Scan is asked for is asked of the layers in its bodies.
  const bool may = layer.op->kind == OpKind::kContraction || layer.op->kind == OpKind::kControl;
  return may || !form_of(asked).products_only ? asked : Precision::kFP32;
}

namespace {

int width(DataType type) noexcept { return static_cast<int>(size_of(type)); }

/// The widest float type among the inputs; of float16 and bfloat16 together, which hold different values, float32.
DataType widest_input(const Layer& layer, const InferredNetwork& inferred, const Assignment& assignment) {
  DataType widest = DataType::kUndefined;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const TensorId id = layer.inputs[i];
    if (id == kNone || layer.op->is_parameter(i)) continue;
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
DataType asked_type(const Layer& layer, std::size_t output, const std::optional<Request>& request) {
  if (const auto type = layer.output_type(output); type && is_floating(*type)) return *type;
  if (!request) return DataType::kUndefined;
  // Integers have no meaning without the layers around: a request for int8 moves what the input holds.
  const auto moved = request->precision();
  if (layer.op->precision == PrecisionRule::kMovement && moved && !is_quantized(*moved)) return storage_of(*moved);
  const DataType type = request->type();
  return layer.op->kind == OpKind::kConstant && is_floating(type) ? type : DataType::kUndefined;
}

void collect_requests(const Network& network, const InferredNetwork& inferred, Assignment& assignment,
                      const Requests* requested) {
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
                    Assignment& assignment, const Requests* requested) {
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
    for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
      const TensorId id = layer.outputs[o];
      if (id == kNone) continue;
      DataType& storage = assignment.storage[id];
      const DataType declared = storage;
      if (!is_chosen(declared)) continue;
      if (assignment.asked[id] != DataType::kUndefined) {
        storage = assignment.asked[id];
      } else if (layer.op->precision == PrecisionRule::kMovement) {
        const DataType followed = widest_input(layer, inferred, assignment);
        if (followed != DataType::kUndefined && width(followed) < width(declared)) storage = followed;
      } else if (layer.op->precision == PrecisionRule::kCompute && declared == DataType::kFloat32 &&
                 !is_stashed(layer, o)) {
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
  result.accumulation = around.accumulation;
  result.attention = around.attention;
  if (!around.asked_in_bodies.empty()) result.asked_in_bodies = part_of(around.asked_in_bodies, body, layers);
  derive_storage(network, inferred, constraints_hold, strongly_typed, result,
                 result.asked_in_bodies.empty() ? nullptr : &result.asked_in_bodies);
  return result;
}

}  // namespace ulpscope
