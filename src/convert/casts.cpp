#include "convert/casts.h"

#include <algorithm>
#include <map>

#include "convert/cast_problem.h"
#include "convert/lowerable.h"
#include "convert/selection.h"
#include "engine/assign.h"
#include "engine/cost.h"
#include "engine/fusion.h"
#include "graph/stashed_outputs.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kMostFoldedElements = std::int64_t{1} << 20;

class Placer {
 public:
  /// `bound`: true if it takes the assignment's type although it could have another one.
  Placer(const Specialization& spec, const Assignment& assignment, const CastOptions& options,
         const IdMap<LayerId, char>& bound)
      : spec_(spec),
        network_(*spec.network),
        assignment_(assignment),
        readings_(find_element_readers(spec, assignment)),
        options_(options),
        bound_(bound) {}

  Typing run() {
    find_constants();
    find_low_types();
    for (std::size_t i = 0; i < network_.inputs.size(); ++i) add_input(i);
    node_of_layer_.assign(network_.layers.size(), -1);
    takes_any_.assign(network_.layers.size(), 0);
    for (LayerId l : network_.layers.ids()) add_layer(l);
    typing_.outputs.resize(network_.outputs.size());
    for (std::size_t o = 0; o < network_.outputs.size(); ++o) add_output(o);
    for (auto& value : problem_.values) {
      std::ranges::sort(value.readers);
      value.readers.erase(std::unique(value.readers.begin(), value.readers.end()), value.readers.end());
    }
    const std::vector<DataType> types = minimize(problem_);
    fill(types);
    return std::move(typing_);
  }

 private:
  DataType declared(TensorId id) const { return spec_.type(id); }
  bool frozen(LayerId id) const { return !options_.frozen.empty() && options_.frozen[id] != 0; }
  bool expressible(LayerId id, DataType type) const { return !options_.expressible || options_.expressible(id, type); }

  void find_constants() {
    typing_.constant.assign(network_.tensors.size(), 0);
    for (TensorId id : network_.tensors.ids()) {
      if (!spec_.is_constant(id) || !is_lowerable(declared(id))) continue;
      const LayerId producer = network_.tensor(id).producer;
      if (producer == kNone || network_.layer(producer).op->kind == OpKind::kConstant)
        typing_.constant[id] = network_.tensor(id).value ? 1 : 0;
      else
        typing_.constant[id] = !frozen(producer) && declared(id) == DataType::kFloat32 &&
                               (options_.fixed_shapes || !spec_.shape_dependent[id]) &&
                               spec_.value(id).size() <= kMostFoldedElements;
    }
  }

  void find_low_types() {
    for (LayerId l : network_.layers.ids()) {
      const DataType type = assignment_.stored_by(l);
      if (type != DataType::kFloat32 && std::ranges::find(low_, type) == low_.end()) low_.push_back(type);
    }
    std::ranges::sort(low_);
  }

  int add_node(std::vector<DataType> types) {
    problem_.nodes.push_back({std::move(types)});
    return static_cast<int>(problem_.nodes.size()) - 1;
  }

  CastProblem::Value& value_of(TensorId id) { return problem_.values[value_[id]]; }

  /// The value of a tensor that `node` writes. `stored`: the type that holds its elements.
  void add_value(TensorId id, int node, std::vector<DataType> exact) {
    if (value_.empty()) value_.assign(network_.tensors.size(), -1);
    value_[id] = static_cast<int>(problem_.values.size());
    if (std::ranges::find(exact, DataType::kFloat32) == exact.end()) exact.push_back(DataType::kFloat32);
    CastProblem::Value value;
    value.producer = node;
    value.exact = std::move(exact);
    problem_.values.push_back(std::move(value));
  }

  bool has_value(TensorId id) const {
    return id != kNone && !value_.empty() && value_[id] >= 0 && !typing_.constant[id];
  }

  void read(TensorId id, int node) {
    if (has_value(id)) value_of(id).readers.push_back(node);
  }

  /// Reads in a fixed type, through a node that stands for it.
  void read_as(TensorId id, DataType type) {
    if (!has_value(id)) return;
    int& node = fixed_[type];
    if (node == 0) node = add_node({type}) + 1;
    read(id, node - 1);
  }

  void add_input(std::size_t index) {
    const TensorId id = network_.inputs[index];
    if (value_.empty()) value_.assign(network_.tensors.size(), -1);
    if (!is_lowerable(declared(id))) return;
    const DataType asked = index < options_.inputs.size() ? options_.inputs[index] : DataType::kUndefined;
    const DataType type = asked == DataType::kUndefined ? declared(id) : asked;
    add_value(id, add_node({type}), {type});
  }

  void add_output(std::size_t index) {
    const TensorId id = network_.outputs[index];
    const DataType asked = index < options_.outputs.size() ? options_.outputs[index] : DataType::kUndefined;
    typing_.outputs[index] = asked == DataType::kUndefined ? declared(id) : asked;
    if (is_lowerable(declared(id))) read_as(id, typing_.outputs[index]);
  }

  /// float32 first, and the narrow types that the layer may have.
  std::vector<DataType> choices(LayerId id, const std::vector<DataType>& without = {}) const {
    std::vector<DataType> types{DataType::kFloat32};
    for (DataType low : low_)
      if (std::ranges::find(without, low) == without.end() && expressible(id, low)) types.push_back(low);
    return types;
  }

  bool writes_floats(const Layer& layer) const {
    return std::ranges::any_of(present(layer.outputs), [&](TensorId id) { return is_lowerable(declared(id)); });
  }

  void add_layer(LayerId id) {
    const Layer& layer = network_.layer(id);
    if (layer.op->kind == OpKind::kConstant) return;
    const bool all_constant =
        std::ranges::all_of(present(layer.outputs), [&](TensorId t) { return typing_.constant[t] != 0; });
    if (layer.op->reads_shape_only) {
      takes_any_[id] = 1;
      return;
    }
    if (frozen(id) || all_constant || layer.op->kind == OpKind::kControl) return add_fixed(id);
    if (layer.op->precision == PrecisionRule::kCompute) return spec_.numeric[id] ? add_compute(id) : add_fixed(id);
    // What only moves elements of constants, as shapes have it, moves rounded ones as well.
    if (layer.op->precision == PrecisionRule::kMovement && writes_floats(layer)) return add_movement(id);
    if (layer.op->function == Function::kCast && layer.op->domain.empty()) return add_cast(id);
    if (layer.op->fills) return add_fill(id);
    // With another float beside it (the scale of QuantizeLinear), both have one type.
    const auto floats =
        std::ranges::count_if(present(layer.inputs), [&](TensorId input) { return is_lowerable(declared(input)); });
    if (!writes_floats(layer) && layer.op->precision == PrecisionRule::kFixed && floats < 2 &&
        std::ranges::all_of(low_, [&](DataType low) { return expressible(id, low); })) {
      takes_any_[id] = 1;
      for (TensorId input : layer.inputs)
        if (has_value(input)) value_of(input).exact_reader = true;
      return;
    }
    add_fixed(id);
  }

  /// Reads and writes what the file declares.
  void add_fixed(LayerId id) {
    const Layer& layer = network_.layer(id);
    for (TensorId input : layer.inputs)
      if (has_value(input)) read_as(input, declared(input));
    for (TensorId output : present(layer.outputs))
      if (is_lowerable(declared(output)) && !typing_.constant[output])
        add_value(output, add_node({declared(output)}), {declared(output)});
  }

  /// Shapes, axes and the like are read as they are declared, operands as the node takes them.
  void read_inputs(const Layer& layer, int node) {
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (!has_value(layer.inputs[i])) continue;
      if (layer.op->is_parameter(i))
        read_as(layer.inputs[i], declared(layer.inputs[i]));
      else
        read(layer.inputs[i], node);
    }
  }

  void add_compute(LayerId id) {
    const Layer& layer = network_.layer(id);
    if (is_typed_with_integers(assignment_, readings_, id)) return add_int8(id);
    const DataType type = storage_of(assignment_.precision[id]);
    std::vector<DataType> exact{type};
    const int node = add_node(types_of_selection(id, type, exact));
    node_of_layer_[id] = node;
    read_inputs(layer, node);
    const DataType stored = stored_by_file(spec_, assignment_, id);
    for (std::size_t o = 0; o < layer.outputs.size(); ++o) {
      const TensorId output = layer.outputs[o];
      if (output == kNone || !is_lowerable(declared(output))) continue;
      const DataType own = is_stashed(layer, o) ? declared(output) : stored;
      if (own == DataType::kUndefined)
        add_value(output, node, exact);
      else
        add_value(output, add_node({own}), {own});
    }
  }

  /// The narrow types that hold everything that the layer reads.
  std::vector<DataType> held_types(const Layer& layer) const {
    std::vector<DataType> types = low_;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const TensorId id = layer.inputs[i];
      if (id == kNone || layer.op->is_parameter(i) || !is_lowerable(declared(id))) continue;
      std::erase_if(types, [&](DataType type) {
        if (!has_value(id)) return declared(id) != DataType::kFloat32 || !holds(spec_, id, type);
        const auto& exact = problem_.values[value_[id]].exact;
        return std::ranges::find(exact, type) == exact.end();
      });
    }
    return types;
  }

  /// A layer that chooses among rounded values computes the same in every type that holds them; `exact`: those types.
  /// Others have the assignment's type.
  std::vector<DataType> types_of_selection(LayerId id, DataType type, std::vector<DataType>& exact) const {
    const Layer& layer = network_.layer(id);
    if (!options_.free_selection || bound_[id] || !selects(layer) || declared(layer.outputs[0]) != DataType::kFloat32)
      return {type};
    std::vector<DataType> held = held_types(layer);
    drop_inexact_limits(layer, held);
    if (type != DataType::kFloat32) {
      // Constants are rounded as the assignment rounds them, then held in float32.
      std::vector<DataType> own{type};
      drop_inexact_limits(layer, own);
      const bool rounded = std::ranges::all_of(layer.inputs, [&](TensorId input) {
        if (input == kNone || !is_lowerable(declared(input)) || typing_.constant[input]) return true;
        if (!has_value(input)) return false;
        const auto& values = problem_.values[value_[input]].exact;
        return std::ranges::find(values, type) != values.end();
      });
      if (own.empty() || !rounded) return {type};
      return {DataType::kFloat32, type};
    }
    std::vector<DataType> types{DataType::kFloat32};
    for (DataType low : held)
      if (expressible(id, low)) types.push_back(low);
    exact.insert(exact.end(), held.begin(), held.end());
    return types;
  }

  void add_int8(LayerId id) {
    const Layer& layer = network_.layer(id);
    for (TensorId input : layer.inputs) read_as(input, DataType::kFloat32);
    const LayerId bias = spec_.bias[id];
    const bool passes_on = bias != kNone && readings_[bias] == Reading::kBias;
    const DataType type = passes_on ? DataType::kFloat32 : assignment_.stored_by(id);
    add_value(layer.outputs[0], add_node({type}), {type});
  }

  void add_movement(LayerId id) {
    const Layer& layer = network_.layer(id);
    const DataType stored = stored_by_movement(spec_, assignment_, id);
    const bool narrow_in_file = std::ranges::any_of(present(layer.outputs), [&](TensorId t) {
      return is_lowerable(declared(t)) && declared(t) != DataType::kFloat32;
    });
    std::vector<DataType> held = held_types(layer);
    std::vector<DataType> types = choices(id);
    if (narrow_in_file || combines_elements(layer) || rounds(layer, stored)) {
      types = {stored};
      held.clear();
    } else if (layer.op->compares) {  // Elements that are rounded before they are compared are others.
      std::erase_if(types, [&](DataType type) {
        return type != DataType::kFloat32 && std::ranges::find(held, type) == held.end();
      });
    }
    // What is moved is what it was.
    std::vector<DataType> exact{stored};
    for (DataType type : held)
      if (type != stored) exact.push_back(type);
    const int node = add_node(std::move(types));
    node_of_layer_[id] = node;
    read_inputs(layer, node);
    for (TensorId output : present(layer.outputs))
      if (is_lowerable(declared(output))) add_value(output, node, exact);
  }

  /// Some of what the layer moves is rounded when it is stored; constants are rounded by whoever writes them.
  bool rounds(const Layer& layer, DataType stored) const {
    if (stored == DataType::kFloat32) return false;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      const TensorId id = layer.inputs[i];
      if (!has_value(id) || layer.op->is_parameter(i)) continue;
      const auto& exact = problem_.values[value_[id]].exact;
      if (std::ranges::find(exact, stored) == exact.end()) return true;
    }
    return false;
  }

  void add_cast(LayerId id) {
    const Layer& layer = network_.layer(id);
    const TensorId input = layer.inputs[0], output = layer.outputs[0];
    const DataType from = declared(input);
    if (declared(output) != DataType::kFloat32) {
      // To an integer or to a narrow type of the model's own choice: takes any type that has the exact values.
      takes_any_[id] = 1;
      if (has_value(input)) value_of(input).exact_reader = true;
      if (is_lowerable(declared(output))) add_value(output, add_node({declared(output)}), {declared(output)});
      return;
    }
    if (from == DataType::kFloat64) return add_fixed(id);
    if (!is_lowerable(from)) {
      // Integers beyond 2^24 reach float16 as infinity either way; bfloat16 would be rounded once instead of twice.
      std::vector<DataType> exact, without;
      if (from == DataType::kBool || from == DataType::kInt8 || from == DataType::kUInt8) exact = low_;
      if (size_of(from) >= 4) without = {DataType::kBFloat16};
      const int node = add_node(choices(id, without));
      node_of_layer_[id] = node;
      return add_value(output, node, std::move(exact));
    }
    // Between floats: a value that is rounded already stays in its type.
    if (typing_.constant[input] || !has_value(input)) return add_fixed(id);
    const int node = add_node(choices(id));
    node_of_layer_[id] = node;
    const std::vector<DataType> exact = value_of(input).exact;
    read(input, node);
    add_value(output, node, exact);
  }

  void add_fill(LayerId id) {
    const Layer& layer = network_.layer(id);
    const TensorId output = layer.outputs[0];
    if (output == kNone || declared(output) != DataType::kFloat32) return add_fixed(id);
    float element = 0;
    if (layer.attributes.has("value")) {
      const Tensor value = layer.attributes.required_tensor("value");
      if (value.size() == 1 && value.type() == DataType::kFloat32) element = value.data<float>()[0];
    }
    std::vector<DataType> exact;
    for (DataType low : low_)
      if (round_value(element, rounding_of(low)) == element) exact.push_back(low);
    const int node = add_node(choices(id));
    node_of_layer_[id] = node;
    add_value(output, node, std::move(exact));
  }

  void fill(const std::vector<DataType>& types) {
    typing_.casts = problem_.casts(types);
    for (LayerId l : network_.layers.ids())
      if (network_.layers[l].op->precision == PrecisionRule::kCompute && node_of_layer_[l] >= 0 &&
          types[node_of_layer_[l]] != storage_of(assignment_.precision[l]))
        typing_.moved.push_back({l, types[node_of_layer_[l]]});
    typing_.written.resize(network_.tensors.size());
    for (TensorId t : network_.tensors.ids())
      typing_.written[t] = value_.empty() || value_[t] < 0 || typing_.constant[t]
                               ? spec_.inferred.types[t]
                               : types[problem_.values[value_[t]].producer];
    typing_.reads.resize(network_.layers.size());
    for (const auto& [l, layer] : network_.layers.items()) {
      auto& reads = typing_.reads[l];
      reads.resize(layer.inputs.size());
      const int node = node_of_layer_[l];
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
        const TensorId id = layer.inputs[i];
        if (id == kNone || !is_lowerable(declared(id))) continue;
        if (takes_any_[l]) continue;
        reads[i].type = declared(id);
        // The vector of a bias is rounded to its type; the sum is one with the product's, in float32.
        if (typing_.constant[id] && readings_[l] == Reading::kBias)
          reads[i].first = rounding_of(assignment_.precision[l]);
        if (node < 0 || layer.op->is_parameter(i)) continue;
        reads[i].type = types[node];
        if (!typing_.constant[id]) continue;
        // A constant takes the steps of its reader: rounded to the type that is stored, then held in another one.
        if (const DataType stored = stored_by_movement(spec_, assignment_, l);
            layer.op->precision == PrecisionRule::kMovement && reads[i].type != stored)
          reads[i].first = rounding_of(stored);
        if (layer.op->precision == PrecisionRule::kCompute && reads[i].type == DataType::kFloat32)
          reads[i].first = rounding_of(assignment_.precision[l]);
        if (const LayerId producer = network_.tensor(id).producer;
            producer != kNone && network_.layer(producer).op->kind == OpKind::kConstant &&
            assignment_.storage[id] != declared(id))
          reads[i].first = rounding_of(assignment_.storage[id]);
      }
    }
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment& assignment_;
  const Readings readings_;
  const CastOptions& options_;
  const IdMap<LayerId, char>& bound_;
  Typing typing_;
  CastProblem problem_;
  std::vector<DataType> low_;
  IdMap<TensorId, int> value_;         ///< -1: none.
  IdMap<LayerId, int> node_of_layer_;  ///< -1: reads and writes declared types.
  IdMap<LayerId, char> takes_any_;     ///< It reads exact values of whatever type.
  std::map<DataType, int> fixed_;      ///< The node that reads in a type, plus 1.
};

}  // namespace

DataType stored_by_file(const Specialization& spec, const Assignment& assignment, LayerId id) {
  if (!spec.numeric[id] || storage_of(assignment.precision[id]) != DataType::kFloat32) return DataType::kUndefined;
  return narrow_type_in_file(spec, id);
}

bool is_typed_with_integers(const Assignment& assignment, const Readings& readings, LayerId id) {
  return reads_elements(readings[id]) ||
         (readings[id] == Reading::kBias && assignment.precision[id] != Precision::kFP32);
}

DataType stored_by_movement(const Specialization& spec, const Assignment& assignment, LayerId id) {
  DataType stored = DataType::kFloat32;
  for (TensorId output : present(spec.network->layer(id).outputs))
    if (is_lowerable(spec.type(output))) stored = assignment.storage[output];
  return stored;
}

bool may_round_what_it_moves(const Specialization& spec, const Assignment& assignment, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  const DataType stored = stored_by_movement(spec, assignment, id);
  if (layer.op->precision != PrecisionRule::kMovement || stored == DataType::kFloat32) return false;
  if (combines_elements(layer)) return true;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
    const TensorId input = layer.inputs[i];
    if (input == kNone || layer.op->is_parameter(i) || !is_lowerable(spec.type(input))) continue;
    if (assignment.storage[input] != stored) return true;
  }
  return false;
}

IdMap<TensorId, Tensor> computed_constants(const Specialization& spec, const Typing& typing) {
  const Network& network = *spec.network;
  IdMap<TensorId, Tensor> result(network.tensors.size());
  for (TensorId id : result.ids())
    if (const LayerId producer = network.tensor(id).producer;
        typing.constant[id] && producer != kNone && network.layer(producer).op->kind != OpKind::kConstant)
      result[id] = spec.value(id);
  return result;
}

Typing place_casts(const Specialization& spec, const Assignment& assignment, const CastOptions& options) {
  IdMap<LayerId, char> bound(spec.network->layers.size(), 0);
  for (;;) {
    Typing typing = Placer(spec, assignment, options, bound).run();
    const std::vector<LayerId> conflicting = fusion_conflicts(spec, assignment, typing.moved);
    if (conflicting.empty()) return typing;
    for (LayerId id : conflicting) bound[id] = 1;
  }
}

}  // namespace ulpscope
