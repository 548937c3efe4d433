#include "graph/inference.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/memory.h"
#include "core/messages.h"
#include "formats/stored_elements.h"
#include "graph/deferred_fold.h"
#include "graph/evaluate.h"
#include "graph/folding.h"
#include "graph/shared_values.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// A tensor of this shape whose elements nobody may read: for operators that look at shapes alone.
Tensor shape_only(DataType type, const Shape& shape) {
  alignas(64) static std::byte nothing[64];
  const DataType known = type == DataType::kUndefined ? DataType::kFloat32 : type;
  return Tensor::borrow(physical_type(known), shape, nothing, nullptr);
}

/// What is known of the formal inputs of a sub-graph from the inputs of its layer.
void set_input_types(const Network& network, const Layer& layer, const Subgraph& graph) {
  Network& body = *graph.network;
  const auto set = [&](std::size_t formal, TensorId actual) {
    if (formal >= body.inputs.size() || actual == kNone) return;
    TensorInfo& info = body.tensor(body.inputs[formal]);
    if (info.type == DataType::kUndefined) info.type = network.tensor(actual).type;
  };
  const std::size_t formals = body.inputs.size() - graph.captures.size();
  for (std::size_t i = 0; i < graph.captures.size(); ++i) set(formals + i, layer.input(graph.captures[i]));
  if (layer.op->body_input == nullptr) return;
  for (std::size_t i = 0; i < formals; ++i) {
    const BodyInput source = layer.op->body_input(layer, static_cast<int>(i));
    set(i, layer.input(source.input));
    TensorInfo& info = body.tensor(body.inputs[i]);
    if (info.type == DataType::kUndefined) info.type = source.type;
  }
}

/// No arithmetic runs in types that only hold values. `values`: inputs or outputs of the layer.
template <typename Values>
void check_storage_types(const Layer& layer, const Values& values) {
  const OpDef& op = *layer.op;
  const auto refused = std::ranges::find_if(values, [](const auto& value) { return is_storage_only(value.type); });
  if (refused == values.end() || op.storage_types == StorageTypes::kTaken) return;
  const bool moves = op.kind == OpKind::kMovement || op.kind == OpKind::kConstant || op.kind == OpKind::kControl;
  if (moves && op.storage_types == StorageTypes::kByKind && !depends_on_elements(layer)) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("has no kernel for elements of type {}; try a Cast or a DequantizeLinear to float32 before it",
                  name_of(refused->type)),
      place_of("infer", layer));
}

/// The values that a layer hands to a sub-graph have the types that this declares.
void check_body_types(const Network& network, const Layer& layer, const Subgraph& graph) {
  const Network& body = *graph.network;
  const auto check = [&](std::size_t formal, int actual) {
    const TensorId id = layer.input(actual);
    if (id == kNone) return;
    const TensorInfo &given = network.tensor(id), &declared = body.tensor(body.inputs[formal]);
    if (given.type == DataType::kUndefined || declared.type == DataType::kUndefined ||
        physical_type(given.type) == physical_type(declared.type))
      return;
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("expected elements of type {} as input {} ('{}'), which is '{}' of its body, got {}",
                            name_of(declared.type), actual, given.name, declared.name, name_of(given.type)),
                place_of("build", layer));
  };
  const std::size_t formals = body.inputs.size() - graph.captures.size();
  for (std::size_t i = 0; i < graph.captures.size(); ++i) check(formals + i, graph.captures[i]);
  for (std::size_t i = 0; i < formals && layer.op->body_input != nullptr; ++i)
    check(i, layer.op->body_input(layer, static_cast<int>(i)).input);
}

std::string names_of(TypeSet types) {
  std::string names;
  for (int t = 0; t < 32; ++t)
    if (const auto type = static_cast<DataType>(t); types.has(type))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(type));
  return names;
}

/// From here on, constants that follow from others are shared.
constexpr std::int64_t kSharedElements = std::int64_t{1} << 16;

/// Everything known so far while `infer` walks through the layers.
class Inference {
 public:
  Inference(const Network& network, const FoldingLimits& limits, const IdMap<TensorId, Tensor>& known)
      : network_(network), limits_(limits), known_(known), from_shapes_(network.tensors.size(), 0) {
    const std::size_t count = network.tensors.size();
    result_.types.resize(count);
    result_.shapes.resize(count);
    result_.values.resize(count);
    for (const auto& [i, info] : network.tensors.items()) {
      result_.types[i] = info.value ? info.value.type() : info.type;
      if (!info.value) continue;
      result_.shapes[i] = info.value.shape();
      result_.values[i] = known.contains(i) && known[i] ? known[i] : physical_value(info.value);
    }
  }

  void set_input(TensorId id, const Shape& shape) {
    const TensorInfo& info = network_.tensor(id);
    const bool fits = std::ranges::all_of(shape, [](std::int64_t dim) { return dim >= 0; });
    if (!fits)
      throw invalid_argument("[infer] input '{}': expected a shape without unknown dimensions, got {}", info.name,
                             to_string(shape));
    const DataType type = info.type == DataType::kUndefined ? DataType::kUInt8 : physical_type(info.type);
    if (const std::string reason = why_too_large(type, shape); !reason.empty())
      throw invalid_argument("[infer] input '{}': {}", info.name, reason);
    result_.shapes[id] = shape;
  }

  void visit(const Layer& layer) {
    if (layer.op->kind == OpKind::kConstant) return;
    std::vector<InferContext::Input> inputs(layer.inputs.size());
    std::vector<const Tensor*> values(layer.inputs.size(), nullptr);
    bool all_known = true, from_shapes = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (layer.inputs[i] == kNone) continue;
      const TensorId id = layer.inputs[i];
      from_shapes |= from_shapes_[id] != 0;
      if (result_.values[id]) values[i] = &result_.values[id];
      inputs[i] = {true, result_.types[id], result_.shapes[id] ? &*result_.shapes[id] : nullptr, values[i], true};
      all_known &= values[i] != nullptr;
    }
    const std::vector<InferContext::Output> outputs = infer_layer(layer, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (layer.outputs[i] == kNone) continue;
      const TensorId id = layer.outputs[i];
      if (outputs[i].type != DataType::kUndefined) result_.types[id] = outputs[i].type;
      if (outputs[i].shape) result_.shapes[id] = outputs[i].shape;
    }
    if (layer.op->run == nullptr || layer.op->kind == OpKind::kControl) return;
    Tensor dummy;
    if (!all_known && layer.op->reads_shape_only && !inputs.empty() && inputs[0].shape != nullptr) {
      dummy = shape_only(inputs[0].type, *inputs[0].shape);
      values[0] = &dummy;
      all_known = from_shapes = true;
    }
    const std::int64_t limit = from_shapes ? limits_.shapes : limits_.constants;
    if (!all_known || (layer.op->is_random != nullptr && layer.op->is_random(values)) || !within_limit(outputs, limit))
      return;
    if (from_shapes || !share(layer)) fold(layer, values, outputs);
    for (TensorId id : present(layer.outputs)) from_shapes_[id] = from_shapes;
  }

  InferredNetwork result() { return std::move(result_); }

 private:
  static bool within_limit(const std::vector<InferContext::Output>& outputs, std::int64_t limit) {
    return std::ranges::all_of(outputs, [&](const InferContext::Output& output) {
      return !output.wanted || !is_floating(output.type) || !output.shape || num_elements(*output.shape) <= limit;
    });
  }

  /// Takes over what is known of all outputs; false when it is not.
  bool share(const Layer& layer) {
    const auto has = [&](TensorId id) { return id == kNone || (known_.contains(id) && known_[id]); };
    if (!std::ranges::all_of(layer.outputs, has)) return false;
    for (TensorId id : present(layer.outputs)) {
      const Tensor& value = known_[id];
      set(id, value.shape(), value);
    }
    return true;
  }

  void set(TensorId id, Shape shape, Tensor value) {
    result_.shapes[id] = std::move(shape);
    if (result_.types[id] == DataType::kUndefined) result_.types[id] = value.type();
    result_.values[id] = std::move(value);
  }

  /// What takes much memory is made once for all networks and shapes.
  std::vector<Tensor> folded(const Layer& layer, std::span<const Tensor* const> inputs,
                             const std::vector<InferContext::Output>& inferred) const {
    const auto make = [&] {
      if (Tensor value = deferred_fold(network_, layer, inputs)) return std::vector<Tensor>{std::move(value)};
      // What is made of constants for this alone leaves with it.
      std::vector<Tensor> held;
      std::vector<const Tensor*> arguments;
      held.reserve(inputs.size());
      for (const Tensor* input : inputs)
        arguments.push_back(input == nullptr ? nullptr : &held.emplace_back(input->in_memory()));
      return evaluate_layer(network_, layer, arguments);
    };
    const bool large = std::ranges::any_of(inferred, [](const InferContext::Output& output) {
      return output.wanted && output.shape && num_elements(*output.shape) >= kSharedElements;
    });
    if (!large) return make();
    const auto name = name_of_values(network_, layer, inputs);
    return name ? shared_values(*name, inputs, make) : make();
  }

  static Tensor physical_value(const Tensor& value) {
    if (physical_type(value.type()) == value.type() || value.size() < kSharedElements) return to_physical(value);
    const Tensor* source = &value;
    return shared_values(
               fmt::format("physical {} {}{}", value.place(), name_of(value.type()), to_string(value.shape())),
               {&source, 1},
               [&] { return std::vector<Tensor>{StoredElements::convert(value, physical_type(value.type()))}; })
        .front();
  }

  void fold(const Layer& layer, std::span<const Tensor* const> inputs,
            const std::vector<InferContext::Output>& inferred) {
    std::vector<Tensor> outputs = folded(layer, inputs, inferred);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (layer.outputs[i] == kNone) continue;
      Shape shape = outputs[i].shape();
      set(layer.outputs[i], std::move(shape), std::move(outputs[i]));
    }
  }

  const Network& network_;
  const FoldingLimits limits_;
  const IdMap<TensorId, Tensor>& known_;
  InferredNetwork result_;
  IdMap<TensorId, char> from_shapes_;  ///< Per tensor: its value is made of the shapes of others.
};

}  // namespace

std::vector<InferContext::Output> infer_layer(const Layer& layer, std::span<const InferContext::Input> inputs) {
  std::vector<InferContext::Output> outputs(layer.outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].wanted = layer.outputs[i] != kNone;
  InferContext context(layer, inputs, outputs);
  check_storage_types(layer, inputs);
  try {
    if (layer.op->inputs.min > 0 && layer.op->kind != OpKind::kControl) context.set_type(0, context.type(0));
    layer.op->infer(context);
  } catch (const NotKnownYet&) {
  } catch (const Error& error) {
    throw error.at(place_of("infer", layer));  // attributes do not know whose they are
  }
  check_storage_types(layer, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].shape) continue;
    const DataType type = outputs[i].type == DataType::kUndefined ? DataType::kUInt8 : physical_type(outputs[i].type);
    const std::string reason = why_too_large(type, *outputs[i].shape);
    if (!reason.empty()) context.fail(fmt::format("output {}: {}", i, reason));
  }
  return outputs;
}

void infer_types(Network& network) {
  for (TensorInfo& info : network.tensors)
    if (info.value) info.type = info.value.type();
  for (const Layer& layer : network.layers) {
    if (layer.op->kind == OpKind::kConstant) continue;
    for (const Subgraph* graph : layer.attributes.graphs()) {
      set_input_types(network, layer, *graph);
      infer_types(*graph->network);
    }
    std::vector<InferContext::Input> inputs(layer.inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (layer.inputs[i] == kNone) continue;
      const TensorInfo& info = network.tensor(layer.inputs[i]);
      // Some operators that are not of the standard have no types without the shapes of their constants.
      const bool told = info.value && !layer.op->domain.empty();
      inputs[i] = {true, info.type, told ? &info.value.shape() : nullptr, nullptr, true};
    }
    const std::vector<InferContext::Output> outputs = infer_layer(layer, inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (layer.outputs[i] == kNone || outputs[i].type == DataType::kUndefined) continue;
      TensorInfo& info = network.tensor(layer.outputs[i]);
      if (info.type != DataType::kUndefined && info.type != outputs[i].type)
        log_warning("tensor '{}' is declared as {}, but layer '{}' ({}) computes {}", info.name, name_of(info.type),
                    layer.name, layer.op->name, name_of(outputs[i].type));
      info.type = outputs[i].type;
    }
  }
}

void infer_captured_shapes(Network& network) {
  std::vector<std::pair<TensorInfo*, TensorId>> captured;
  for (const Layer& layer : network.layers)
    for (const Subgraph* graph : layer.attributes.graphs()) {
      const std::size_t formals = graph->network->inputs.size() - graph->captures.size();
      for (std::size_t i = 0; i < graph->captures.size() && layer.op->body_input != nullptr; ++i) {
        TensorInfo& info = graph->network->tensor(graph->network->inputs[formals + i]);
        if (!info.shape) captured.emplace_back(&info, layer.input(graph->captures[i]));
      }
    }
  const auto infer_with = [&](std::int64_t open) {
    std::vector<std::optional<Shape>> shapes;
    for (TensorId input : network.inputs) {
      auto& shape = shapes.emplace_back(network.tensor(input).shape);
      if (shape) std::ranges::replace(*shape, std::int64_t{-1}, open);
    }
    return infer(network, shapes, {.constants = 0, .shapes = 0}, {}).shapes;
  };
  try {
    if (captured.empty()) return;
    const auto some = infer_with(12), others = infer_with(24);
    for (const auto& [info, id] : captured) {
      const auto &one = some[id], &other = others[id];
      if (!one || !other || one->size() != other->size()) continue;
      info->shape = *one;
      for (std::size_t d = 0; d < one->size(); ++d)
        if ((*one)[d] != (*other)[d]) (*info->shape)[d] = -1;
    }
  } catch (const Error&) {  // They do not fit: nothing is known.
  }
}

void check_types(const Network& network) {
  for (const Layer& layer : network.layers) {
    for (const Subgraph* graph : layer.attributes.graphs()) {
      check_body_types(network, layer, *graph);
      check_types(*graph->network);
    }
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (layer.inputs[i] == kNone) continue;
      const TensorInfo& info = network.tensor(layer.inputs[i]);
      const TypeSet types = layer.op->types_of(static_cast<int>(i));
      if (info.type == DataType::kUndefined || types.empty() || types.has(physical_type(info.type))) continue;
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("expected elements of type {} as input {} ('{}'), got {}; try a Cast before it",
                              names_of(types), i, info.name, name_of(info.type)),
                  place_of("build", layer));
    }
  }
}

std::vector<std::optional<Shape>> body_input_shapes(const Network& network,
                                                    const IdMap<TensorId, std::optional<Shape>>& shapes,
                                                    const Body& body) {
  const Layer& layer = network.layers[body.holder];
  const Network& inner = *body.graph->network;
  std::vector<std::optional<Shape>> result(inner.inputs.size());
  const auto shape_of = [&](int input) {
    const TensorId id = input < 0 ? kNone : layer.input(static_cast<std::size_t>(input));
    return id == kNone ? std::nullopt : shapes[id];
  };
  const std::size_t formals = inner.inputs.size() - body.graph->captures.size();
  for (std::size_t i = 0; i < body.graph->captures.size(); ++i) result[formals + i] = shape_of(body.graph->captures[i]);
  for (std::size_t i = 0; i < formals && layer.op->body_input != nullptr; ++i) {
    const BodyInput source = layer.op->body_input(layer, static_cast<int>(i));
    auto& shape = result[i];
    if (source.input < 0) {  // A scalar, in the rank that the body declares: some exporters write (1,) for ().
      const auto& declared = inner.tensor(inner.inputs[i]).shape;
      shape = declared && declared->size() == 1 ? Shape{1} : Shape{};
      continue;
    }
    shape = shape_of(source.input);
    std::vector<std::size_t> dropped;
    for (std::int64_t axis : source.without) {
      const std::int64_t rank = shape ? std::ssize(*shape) : 0;
      if (axis < -rank || axis >= rank) shape.reset();
      if (shape) dropped.push_back(static_cast<std::size_t>(axis < 0 ? axis + rank : axis));
    }
    std::ranges::sort(dropped, std::ranges::greater{});
    for (std::size_t axis : dropped)
      if (shape) shape->erase(shape->begin() + static_cast<std::ptrdiff_t>(axis));
  }
  return result;
}

InferredNetwork infer(const Network& network, const std::vector<Shape>& input_shapes,
                      std::int64_t max_folded_elements) {
  return infer(network, {input_shapes.begin(), input_shapes.end()},
               FoldingLimits{max_folded_elements, max_folded_elements}, {});
}

InferredNetwork infer(const Network& network, const std::vector<std::optional<Shape>>& input_shapes,
                      const FoldingLimits& limits, const IdMap<TensorId, Tensor>& known) {
  if (input_shapes.size() != network.inputs.size())
    throw invalid_argument("[infer] network '{}': expected the shapes of {} inputs, got {}", network.name,
                           network.inputs.size(), input_shapes.size());
  check_types(network);
  Inference inference(network, limits, known);
  for (std::size_t i = 0; i < input_shapes.size(); ++i)
    if (input_shapes[i]) inference.set_input(network.inputs[i], *input_shapes[i]);
  for (const Layer& layer : network.layers) inference.visit(layer);
  return inference.result();
}

}  // namespace ulpscope
