#include "runtime/staged_plan.h"

#include <algorithm>
#include <mutex>
#include <ranges>

#include "engine/fusion.h"
#include "ops/forms.h"
#include "runtime/recently_used.h"

namespace ulpscope {
namespace {

/// Longer ones decide no shapes in practice, and would make a plan of their own for every input.
constexpr std::int64_t kLongestShapeValue = 64;

/// Layers of a network as one by itself. Tensors keep their ids; layers get new ones.
struct Part {
  Network network;
  IdMap<LayerId, LayerId> original;  ///< Per layer of the part.
};

Part extract(const Network& whole, const IdMap<LayerId, char>& taken) {
  Part part;
  part.network.name = whole.name;
  part.network.source = whole.source;
  part.network.files = whole.files;
  part.network.tensors = whole.tensors;
  for (TensorInfo& info : part.network.tensors) info.producer = kNone;
  for (const auto& [l, layer] : whole.layers.items()) {
    if (!taken[l]) continue;
    part.network.add_layer(layer);
    part.original.push_back(l);
  }
  part.network.rebuild_index();
  return part;
}

/// Layers with a precision, whose operands became constants with the shapes (a product of what ConstantOfShape makes),
/// run in it all the same, and so do those that move what they make: where shapes are not known, they do.
void unfold_numeric_layers(const Part& part, const Specialization& whole, Specialization& spec) {
  IdMap<TensorId, char> unfolded(part.network.tensors.size(), 0);
  const auto is_unfolded = [&](TensorId id) { return unfolded[id] != 0; };
  for (const auto& [l, layer] : part.network.layers.items()) {
    const LayerId original = part.original[l];
    const bool reads_unfolded = std::ranges::any_of(present(layer.inputs), is_unfolded);
    if (spec.biased[l] != kNone && reads_unfolded) {
      if (spec.bias[spec.biased[l]] == l) spec.bias[spec.biased[l]] = kNone;
      spec.biased[l] = kNone;
    }
    const auto is_float = [&](TensorId id) { return is_floating(spec.type(id)); };
    if (spec.folded[l] == 0 || whole.folded[original] != 0 || !(whole.numeric[original] != 0 || reads_unfolded) ||
        !std::ranges::any_of(present(layer.outputs), is_float))
      continue;
    spec.folded[l] = 0;
    for (TensorId id : present(layer.outputs)) {
      unfolded[id] = 1;
      spec.inferred.values[id] = Tensor();
      spec.shape_dependent[id] = 0;
    }
    for (TensorId id : present(layer.inputs)) {
      auto& readers = spec.consumers[id];
      if (std::ranges::find(readers, l) == readers.end()) readers.insert(std::ranges::lower_bound(readers, l), l);
    }
  }
}

/// For these input shapes; what has a precision stays as it is in the whole network.
std::shared_ptr<Specialization> specialize_part(const Part& part, std::vector<Shape> shapes,
                                                const Specialization& whole) {
  auto spec = std::const_pointer_cast<Specialization>(specialize(part.network, std::move(shapes), &whole));
  unfold_numeric_layers(part, whole, *spec);
  for (LayerId l : part.network.layers.ids())
    spec->numeric[l] = spec->folded[l] != 0 ? 0 : whole.numeric[part.original[l]];
  return spec;
}

/// `network`: the whole one.
std::shared_ptr<const PlanParts> parts_of(const Part& part, const Network& network, const PlanParts& whole,
                                          WeightCache& weights) {
  Assignment assignment = whole.assignment;
  assignment.precision.clear();
  assignment.reason.clear();
  IdMap<LayerId, GraphFunction> subgraphs;
  for (LayerId original : part.original) {
    assignment.precision.push_back(whole.assignment.precision[original]);
    assignment.reason.push_back(whole.assignment.reason.contains(original) ? whole.assignment.reason[original] : "");
    subgraphs.push_back(whole.subgraphs.contains(original) ? whole.subgraphs[original] : GraphFunction{});
  }
  for (const Body& body : network.bodies())
    if (std::ranges::find(part.original, body.holder) != part.original.end())
      for (Precision each : part_of(whole.assignment.precision, body, body.graph->network->num_all_layers()))
        assignment.precision.push_back(each);
  return std::make_shared<PlanParts>(
      PlanParts{whole.backend, std::move(assignment), whole.fusion, weights, std::move(subgraphs), whole.replay});
}

/// Where the values of a tensor are, at the end or between stages.
struct Place {
  enum class Source : std::uint8_t { kInput, kFirst, kRest } source = Source::kInput;
  std::size_t index = 0;
};

/// A plan for everything behind the first stage, for one set of shapes.
struct Continuation {
  Part part;
  WeightCache weights;  ///< Names of folded constants are its own.
  std::shared_ptr<const Plan> plan;
};

/// Some layer computes in, or some tensor is stored in, less than float32.
bool rounds_anything(const Specialization& spec, const Assignment& assignment) {
  for (LayerId l : spec.network->layers.ids())
    if (spec.numeric[l] != 0 && assignment.precision[l] != Precision::kFP32) return true;
  return std::ranges::any_of(spec.network->tensors.ids(), [&](TensorId id) {
    return spec.is_held_as_float(id) && rounding_of(assignment.storage[id]) != Rounding::kNone;
  });
}

class StagedPlan final : public Plan {
 public:
  StagedPlan(std::shared_ptr<const Specialization> spec, Schedule schedule, std::shared_ptr<const PlanParts> parts,
             const IdMap<LayerId, char>& rest)
      : Plan(std::move(spec), std::move(schedule)), parts_(std::move(parts)), first_weights_(parts_->weights) {
    const Network& whole = *spec_->network;
    IdMap<LayerId, char> before(whole.layers.size(), 0);
    taken_.assign(whole.layers.size(), 0);
    for (LayerId l : whole.layers.ids()) {
      // Constants are made wherever they are read; what comes from shapes is known by now.
      const bool made = spec_->folded[l] != 0 && comes_from_constants(l);
      taken_[l] = made || rest[l];
      before[l] = made || (!rest[l] && !spec_->folded[l]);
    }
    find_frontier(rest);
    first_ = extract(whole, before);
    first_.network.inputs = whole.inputs;
    set_known_values(first_.network);
    place_outputs(rest);
    auto first_spec = specialize_part(first_, spec_->input_shapes, *spec_);
    const auto first_parts = parts_of(first_, *spec_->network, *parts_, first_weights_);
    Schedule first_schedule =
        describe(*first_spec, first_parts->assignment, grouping_of(first_, *first_spec, *first_parts));
    first_plan_ = parts_->backend.plan(std::move(first_spec), std::move(first_schedule), first_weights_,
                                       first_parts->subgraphs, parts_->replay.get());
  }

  std::vector<Tensor> run(std::span<const Tensor> inputs, ActivationStore* store, bool keep) const override {
    const std::vector<Tensor> early = first_plan_->run(inputs, store, keep);
    const std::vector<Tensor> frontier = frontier_of(inputs, early);
    const std::shared_ptr<const Continuation> next = continuation(frontier);
    const std::vector<Tensor> late = next->plan->run(inputs_of(*next, frontier));
    std::vector<Tensor> results;
    for (const Place& place : output_places_)
      results.push_back(place.source == Place::Source::kRest ? late[place.index] : value_at(place, inputs, early));
    return results;
  }

  std::vector<StepTime> profile(std::span<const Tensor> inputs) const override {
    std::vector<StepTime> times = first_plan_->profile(inputs);
    rename(times, first_);
    const std::vector<Tensor> frontier = frontier_of(inputs, first_plan_->run(inputs));
    const std::shared_ptr<const Continuation> next = continuation(frontier);
    std::vector<StepTime> late = next->plan->profile(inputs_of(*next, frontier));
    rename(late, next->part);
    times.insert(times.end(), late.begin(), late.end());
    return times;
  }

  /// Of what runs behind the first stage: those of the last shapes.
  PlanTactics tactics() const override {
    PlanTactics all = first_plan_->tactics();
    rename(all.steps, first_);
    const std::lock_guard lock(mutex_);
    if (const auto last = continuations_.any()) {
      std::vector<StepTactic> late = last->plan->tactics().steps;
      rename(late, last->part);
      all.steps.insert(all.steps.end(), late.begin(), late.end());
    }
    return all;
  }

  std::size_t arena_bytes() const noexcept override {
    const std::lock_guard lock(mutex_);
    const auto last = continuations_.any();
    return first_plan_->arena_bytes() + (last != nullptr ? last->plan->arena_bytes() : 0);
  }

 private:
  /// The layers of steps of a part, as the whole network numbers them.
  static void rename(auto& steps, const Part& part) {
    for (auto& step : steps)
      if (step.layer != kNone) step.layer = part.original[step.layer];
  }

  static const Tensor& value_at(const Place& place, std::span<const Tensor> inputs, std::span<const Tensor> early) {
    return place.source == Place::Source::kInput ? inputs[place.index] : early[place.index];
  }

  std::vector<Tensor> frontier_of(std::span<const Tensor> inputs, std::span<const Tensor> early) const {
    std::vector<Tensor> frontier;
    for (const Place& place : frontier_places_) frontier.push_back(value_at(place, inputs, early));
    return frontier;
  }

  std::vector<Tensor> inputs_of(const Continuation& next, std::span<const Tensor> frontier) const {
    std::vector<Tensor> given;
    for (TensorId id : next.part.network.inputs)
      given.push_back(frontier[static_cast<std::size_t>(std::ranges::find(frontier_, id) - frontier_.begin())]);
    return given;
  }

  /// The groups of the whole network, as far as they are in the part; see make_plan.
  Grouping grouping_of(const Part& part, const Specialization& spec, const PlanParts& parts) const {
    if (!rounds_anything(*spec_, parts_->assignment)) return fuse(spec, parts.assignment, parts.fusion);
    const Grouping& whole = grouping();
    Grouping result;
    result.internal = whole.internal;
    result.group_of.assign(part.network.layers.size(), kNone);
    IdMap<LayerId, LayerId> own(spec_->network->layers.size(), kNone);
    for (LayerId l : part.network.layers.ids())
      if (!spec.folded[l]) own[part.original[l]] = l;
    for (const Group& group : whole.groups) {
      Group made{group.kind, {}};
      for (LayerId l : group.layers)
        if (own[l] != kNone) made.layers.push_back(own[l]);
      if (made.layers.empty()) continue;
      for (LayerId l : made.layers) result.group_of[l] = static_cast<int>(result.groups.size());
      result.groups.push_back(std::move(made));
    }
    return result;
  }

  bool comes_from_constants(LayerId l) const {
    return std::ranges::none_of(present(spec_->network->layer(l).outputs),
                                [&](TensorId id) { return spec_->shape_dependent[id] != 0; });
  }

  /// What was made of shapes stays what it is.
  void set_known_values(Network& network) const {
    for (TensorId id : network.tensors.ids())
      if (spec_->shape_dependent[id] != 0 && spec_->is_constant(id)) network.tensor(id).value = spec_->value(id);
  }

  /// Values that the rest reads and does not make.
  void find_frontier(const IdMap<LayerId, char>& rest) {
    const Network& whole = *spec_->network;
    IdMap<TensorId, char> seen(whole.tensors.size(), 0);
    for (const auto& [l, layer] : whole.layers.items()) {
      if (!rest[l]) continue;
      for (TensorId id : present(layer.inputs)) {
        const LayerId producer = whole.tensor(id).producer;
        if (seen[id] || spec_->is_constant(id) || (producer != kNone && rest[producer])) continue;
        seen[id] = 1;
        frontier_.push_back(id);
      }
    }
  }

  Place place_early(TensorId id) {
    const std::vector<TensorId>& inputs = spec_->network->inputs;
    if (const auto found = std::ranges::find(inputs, id); found != inputs.end())
      return {Place::Source::kInput, static_cast<std::size_t>(found - inputs.begin())};
    std::vector<TensorId>& made = first_.network.outputs;
    auto found = std::ranges::find(made, id);
    if (found == made.end()) found = made.insert(made.end(), id);
    return {Place::Source::kFirst, static_cast<std::size_t>(found - made.begin())};
  }

  void place_outputs(const IdMap<LayerId, char>& rest) {
    for (TensorId id : frontier_) frontier_places_.push_back(place_early(id));
    for (TensorId id : spec_->network->outputs) {
      const LayerId producer = spec_->network->tensor(id).producer;
      if (producer != kNone && rest[producer]) {
        output_places_.push_back({Place::Source::kRest, late_outputs_.size()});
        late_outputs_.push_back(id);
      } else {
        output_places_.push_back(place_early(id));
      }
    }
  }

  /// The rest as a network whose inputs are the frontier, but for values that decide shapes: these are constants.
  Part rest_with(std::span<const Tensor> frontier, const std::vector<char>& deciding) const {
    Part part = extract(*spec_->network, taken_);
    set_known_values(part.network);
    for (std::size_t i = 0; i < frontier_.size(); ++i) {
      if (deciding[i])
        part.network.tensor(frontier_[i]).value = frontier[i].clone();
      else
        part.network.inputs.push_back(frontier_[i]);
    }
    part.network.outputs = late_outputs_;
    return part;
  }

  std::vector<Shape> shapes_of(std::span<const Tensor> frontier, const std::vector<char>& deciding) const {
    std::vector<Shape> shapes;
    for (std::size_t i = 0; i < frontier.size(); ++i)
      if (!deciding[i]) shapes.push_back(frontier[i].shape());
    return shapes;
  }

  bool may_decide(const Tensor& tensor) const {
    return (is_integer(tensor.type()) || tensor.type() == DataType::kBool) && tensor.size() <= kLongestShapeValue;
  }

  /// Values of the frontier that layers need to know before they have shapes, through integers on the way.
  bool add_deciding(const Specialization& spec, std::span<const Tensor> frontier, std::vector<char>& deciding) const {
    const Network& network = *spec.network;
    IdMap<TensorId, char> wanted(network.tensors.size(), 0);
    for (const auto& [l, layer] : network.layers.items()) {
      const bool settled =
          std::ranges::all_of(present(layer.inputs), [&](TensorId id) { return spec.shape(id).has_value(); });
      const bool open =
          std::ranges::any_of(present(layer.outputs), [&](TensorId id) { return !spec.shape(id).has_value(); });
      if (settled && open)
        for (TensorId id : present(layer.inputs)) wanted[id] |= !is_floating(spec.type(id)) && !spec.is_constant(id);
    }
    for (LayerId l : std::views::reverse(network.layers.ids())) {
      const Layer& layer = network.layer(l);
      if (std::ranges::none_of(present(layer.outputs), [&](TensorId id) { return wanted[id] != 0; })) continue;
      for (TensorId id : present(layer.inputs)) wanted[id] |= !is_floating(spec.type(id)) && !spec.is_constant(id);
    }
    bool added = false;
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      if (deciding[i] || !wanted[frontier_[i]] || !may_decide(frontier[i])) continue;
      deciding[i] = 1;
      added = true;
    }
    return added;
  }

  void find_deciding(std::span<const Tensor> frontier) const {
    std::vector<char> deciding(frontier.size(), 0);
    for (bool again = true; again;) {
      const Part part = rest_with(frontier, deciding);
      again = add_deciding(*specialize_part(part, shapes_of(frontier, deciding), *spec_), frontier, deciding);
    }
    deciding_ = std::move(deciding);
  }

  std::shared_ptr<const Continuation> continuation(std::span<const Tensor> frontier) const {
    const std::lock_guard lock(mutex_);
    if (!deciding_) find_deciding(frontier);
    std::vector<Shape> key = shapes_of(frontier, *deciding_);
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      if (!(*deciding_)[i]) continue;
      key.push_back(frontier[i].shape());
      const Tensor wide = frontier[i].cast(DataType::kInt64);
      key.emplace_back(wide.data<std::int64_t>(), wide.data<std::int64_t>() + wide.size());
    }
    if (auto found = continuations_.find(key)) return found;
    auto made = std::make_shared<Continuation>(
        Continuation{rest_with(frontier, *deciding_), WeightCache(parts_->weights), nullptr});
    auto spec = specialize_part(made->part, shapes_of(frontier, *deciding_), *spec_);
    const auto parts = parts_of(made->part, *spec_->network, *parts_, made->weights);
    Grouping groups = grouping_of(made->part, *spec, *parts);
    made->plan = make_plan(std::move(spec), std::move(groups), parts);
    continuations_.put(key, made);
    return made;
  }

  const std::shared_ptr<const PlanParts> parts_;
  IdMap<LayerId, char> taken_;  ///< Of the whole network: what the rest consists of, constants included.
  std::vector<TensorId> frontier_, late_outputs_;
  std::vector<Place> frontier_places_, output_places_;
  Part first_;
  WeightCache first_weights_;
  std::shared_ptr<const Plan> first_plan_;

  mutable std::mutex mutex_;                           ///< Of what follows.
  mutable std::optional<std::vector<char>> deciding_;  ///< Per tensor of the frontier: its values decide shapes.
  mutable RecentlyUsed<std::shared_ptr<const Continuation>> continuations_{16};
};

/// Per layer: it reads something whose shape is not known, or is in one group with such a layer. Empty where no product
/// is among them, and where there are integers, of the file or of int8 layers: products of those stay float while
/// shapes are not known (docs/numerics.md), which a plan that knows the shapes would not see; and both forms have the
/// same bits.
IdMap<LayerId, char> layers_behind_open_shapes(const Specialization& spec, const Assignment& assignment,
                                               const Grouping& grouping) {
  const Network& network = *spec.network;
  IdMap<LayerId, char> rest(network.layers.size(), 0);
  const auto is_behind = [&](TensorId id) {
    const LayerId producer = network.tensor(id).producer;
    return !spec.shape(id) || (producer != kNone && rest[producer] != 0);
  };
  for (bool again = true; again;) {
    again = false;
    for (const auto& [l, layer] : network.layers.items())
      if (!spec.folded[l] && !rest[l] && std::ranges::any_of(present(layer.inputs), is_behind)) rest[l] = 1;
    for (const Group& group : grouping.groups) {
      const auto count = std::ranges::count_if(group.layers, [&](LayerId l) { return rest[l] != 0; });
      if (count == 0 || count == std::ssize(group.layers)) continue;
      for (LayerId l : group.layers) rest[l] = 1;
      again = true;
    }
  }
  const bool heavy = std::ranges::any_of(
      network.layers.ids(), [&](LayerId l) { return rest[l] && network.layer(l).op->multiply_adds != nullptr; });
  const bool has_integers = std::ranges::any_of(network.layers.ids(), [&](LayerId l) {
    return rest[l] && (ops::is_dequantize(network.layer(l)) || is_quantized(assignment.precision[l]));
  });
  return heavy && !has_integers ? rest : IdMap<LayerId, char>();
}

}  // namespace

std::shared_ptr<const Plan> make_plan(std::shared_ptr<const Specialization> spec, Grouping grouping,
                                      std::shared_ptr<const PlanParts> parts) {
  const IdMap<LayerId, char> rest = layers_behind_open_shapes(*spec, parts->assignment, grouping);
  Schedule schedule = describe(*spec, parts->assignment, std::move(grouping));
  if (!rest.empty()) return std::make_shared<StagedPlan>(std::move(spec), std::move(schedule), std::move(parts), rest);
  return parts->backend.plan(std::move(spec), std::move(schedule), parts->weights, parts->subgraphs,
                             parts->replay.get());
}

std::shared_ptr<const DevicePlan> make_device_plan(const DeviceBackend& backend,
                                                   std::shared_ptr<const Specialization> spec, Grouping grouping,
                                                   const PlanParts& parts) {
  if (!layers_behind_open_shapes(*spec, parts.assignment, grouping).empty()) return nullptr;
  Schedule schedule = describe(*spec, parts.assignment, std::move(grouping));
  return backend.plan(std::move(spec), std::move(schedule), parts.weights, parts.subgraphs, parts.replay.get());
}

}  // namespace ulpscope
