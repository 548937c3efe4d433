#include "engine/cost.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/group_times.h"

namespace ulpscope {
namespace {

/// Bytes per element.
double of_weights(Precision p) { return form_of(p).bytes(form_of(p).weight); }
double of_activations(Precision p) { return form_of(p).bytes(form_of(p).activation); }

}  // namespace

double elements_of(const Specialization& spec, TensorId id) {
  return id != kNone && spec.shape(id) ? static_cast<double>(num_elements(*spec.shape(id))) : 0.0;
}

LayerWork work_of(const Specialization& spec, const Layer& layer) {
  LayerWork work;
  for (TensorId id : present(layer.inputs))
    (spec.is_constant(id) ? work.weight_elements : work.activation_elements) += elements_of(spec, id);
  double out = 0;
  for (TensorId id : layer.outputs) out += elements_of(spec, id);
  work.activation_elements += out;
  work.operations = out;
  const auto shape = [&](TensorId id) { return id != kNone && spec.shape(id) ? &*spec.shape(id) : nullptr; };
  // Recurrent layers may be asked for their last state alone.
  const Shape* output = shape(layer.outputs[0]);
  const Shape none;
  if (output == nullptr && layer.op->kind != OpKind::kContraction) output = &none;
  if (layer.op->multiply_adds == nullptr || !shape(layer.input(0)) || !shape(layer.input(1)) || output == nullptr)
    return work;
  std::vector<const Shape*> shapes;
  for (TensorId id : layer.inputs) shapes.push_back(shape(id));
  work.multiply_adds = layer.op->multiply_adds(layer, shapes, *output);
  work.operations = 2 * work.multiply_adds;
  return work;
}

namespace {

/// Per element: of a cast between two and four bytes, and of a value that a broken group stores and reads.
constexpr double kCastBytes = 6, kBrokenBytes = 8;

double weight_bytes(const LayerWork& work, Precision p) {
  return work.multiply_adds > 0 ? work.weight_elements * of_weights(p) : 0;
}

}  // namespace

DataType CostProblem::storage(int node, int choice) const {
  const std::vector<Precision>& choices = nodes[node].choices;
  const auto stores_floats = [&](Precision p) { return hands_integers ? !is_of_weights(p) : is_float(p); };
  const auto found = std::find_if(choices.begin() + choice, choices.end(), stores_floats);
  return found != choices.end() ? form_of(*found).read_type() : DataType::kFloat32;
}

double CostProblem::energy(const std::vector<int>& choice) const {
  double total = 0;
  for (std::size_t n = 0; n < nodes.size(); ++n) total += nodes[n].cost[choice[n]];
  const auto stored = [&](int node) { return storage(node, choice[node]); };
  for (const Value& value : values) {
    const DataType own = value.producer < 0 ? DataType::kFloat32 : stored(value.producer);
    std::set<DataType> casts;
    for (int consumer : value.consumers)
      if (stored(consumer) != own) casts.insert(stored(consumer));
    if (value.output && own != DataType::kFloat32) casts.insert(DataType::kFloat32);
    total += value.cast_us() * static_cast<double>(casts.size());
  }
  for (const Link& link : links)
    if (stored(link.a) != stored(link.b)) total += link.broken_us;
  return total;
}

namespace {

/// The nodes of one group, for what was measured of it as a whole.
class GroupNodes {
 public:
  explicit GroupNodes(std::vector<CostProblem::Node*> nodes) : nodes_(std::move(nodes)) {}

  /// Shares out the time of the group in a precision among those that may have it, as their costs are to each other.
  /// Those that may not (products alone have tf32) run in the highest that they have.
  void set_time(Precision p, double us) {
    double own = 0, others = 0;
    int count = 0;
    for (const CostProblem::Node* node : nodes_) {
      const auto place = place_of(*node, p);
      (place ? own : others) += node->cost[place.value_or(node->cost.size() - 1)];
      count += place ? 1 : 0;
    }
    const double wanted = std::max(0.0, us - others);
    for (CostProblem::Node* node : nodes_)
      if (const auto place = place_of(*node, p))
        node->cost[*place] = own > 0 ? node->cost[*place] * (wanted / own) : wanted / count;
  }
  std::set<Precision> precisions() const {
    std::set<Precision> result;  // fp32 is the first: it is what the others of a group fall back on.
    for (const CostProblem::Node* node : nodes_) result.insert(node->choices.begin(), node->choices.end());
    return result;
  }

 private:
  static std::optional<std::size_t> place_of(const CostProblem::Node& node, Precision p) {
    const auto found = std::ranges::find(node.choices, p);
    if (found == node.choices.end()) return std::nullopt;
    return static_cast<std::size_t>(found - node.choices.begin());
  }

  std::vector<CostProblem::Node*> nodes_;
};

/// Groups whose times are known, or modelled, as a whole.
void set_group_costs(const Specialization& spec, const Grouping& grouping, const Target& target,
                     const IdMap<LayerId, int>& node_of, CostProblem& problem) {
  const GroupTimes times(spec, target.timed);
  if (times.empty() && target.kernels == nullptr) return;
  const std::vector<int> together = count_together(spec, grouping, nullptr);
  for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
    const Group& group = grouping.groups[g];
    std::vector<CostProblem::Node*> members;
    std::map<Precision, DataType> stored;
    for (const LayerId id : group.layers) {
      const int node = node_of[id];
      if (node < 0) continue;
      members.push_back(&problem.nodes[node]);
      for (std::size_t c = 0; c < members.back()->choices.size(); ++c)
        stored.try_emplace(members.back()->choices[c], problem.storage(node, static_cast<int>(c)));
    }
    GroupNodes nodes(std::move(members));
    for (const Precision p : nodes.precisions()) {
      std::optional<double> us = times.find_like(group, name_of(p), together[g]);
      if (!us && target.kernels != nullptr) {
        const auto work = kernel_work(spec, group, p, stored.at(p), together[g]);
        us = work ? target.kernel_us(*work) : 0;
      }
      if (us) nodes.set_time(p, *us);
    }
  }
}

/// A node per layer that computes values, and its costs. Returns which one is a layer's, -1: none.
IdMap<LayerId, int> add_nodes(const Specialization& spec, const Grouping& grouping, const Target& target,
                              const IdMap<LayerId, std::vector<Precision>>& choices, CostProblem& problem) {
  const Network& network = *spec.network;
  IdMap<LayerId, int> node_of(network.layers.size(), -1);
  for (LayerId l : network.layers.ids()) {
    if (!spec.numeric[l]) continue;
    node_of[l] = static_cast<int>(problem.nodes.size());
    const int group = grouping.group_of[l];
    const bool head = group < 0 || grouping.groups[group].layers.front() == l;
    CostProblem::Node node{l, choices[l], {}};
    const LayerWork work = work_of(spec, network.layers[l]);
    for (Precision p : choices[l]) {
      // Followers of a group work on values that are already there; what a broken group costs is in the links.
      const double bytes =
          work.weight_elements * of_weights(p) + (head ? work.activation_elements * of_activations(p) : 0);
      node.cost.push_back((head ? target.launch_us : 0) +
                          target.work_us(work.operations, bytes, target.has(p) ? p : Precision::kFP32));
    }
    problem.nodes.push_back(std::move(node));
  }
  set_group_costs(spec, grouping, target, node_of, problem);
  if (target.weight_us_per_mb > 0)
    for (CostProblem::Node& node : problem.nodes)
      for (std::size_t c = 0; c < node.choices.size(); ++c)
        node.cost[c] +=
            target.weight_us_per_mb * 1e-6 * weight_bytes(work_of(spec, network.layers[node.layer]), node.choices[c]);
  return node_of;
}

}  // namespace

CostProblem make_cost_problem(const Specialization& spec, const Grouping& grouping, const Target& target,
                              const IdMap<LayerId, std::vector<Precision>>& choices) {
  const Network& network = *spec.network;
  CostProblem problem;
  problem.hands_integers = target.kernels == nullptr;
  const IdMap<LayerId, int> node_of = add_nodes(spec, grouping, target, choices, problem);
  // Movement layers pass values on in the type that they have: consumers behind them are consumers of what is before.
  IdMap<TensorId, std::set<TensorId>> sources(network.tensors.size());
  std::map<TensorId, CostProblem::Value> values;
  for (TensorId id : network.inputs)
    if (is_floating(spec.type(id))) sources[id] = {id};
  const auto value_of = [&](TensorId id) -> CostProblem::Value& {
    auto [found, made] = values.try_emplace(id);
    if (made) {
      const LayerId producer = network.tensor(id).producer;
      found->second.tensor = id;
      found->second.producer = producer == kNone ? -1 : node_of[producer];
      found->second.elements = elements_of(spec, id);
      found->second.pass_us = target.pass_us(found->second.elements, kCastBytes);
      found->second.share = target.cast_share;
    }
    return found->second;
  };
  for (const auto& [l, layer] : network.layers.items()) {
    if (spec.folded[l]) continue;
    for (TensorId output : present(layer.outputs)) {
      if (!is_floating(spec.type(output))) continue;
      if (layer.op->precision == PrecisionRule::kMovement) {
        for (TensorId input : present(layer.inputs))
          sources[output].insert(sources[input].begin(), sources[input].end());
      } else {
        sources[output] = {output};
      }
    }
    if (node_of[l] < 0) continue;
    for (TensorId input : present(layer.inputs)) {
      if (spec.is_constant(input)) continue;
      for (TensorId source : sources[input]) {
        CostProblem::Value& value = value_of(source);
        if (std::ranges::find(value.consumers, node_of[l]) == value.consumers.end())
          value.consumers.push_back(node_of[l]);
        if (layer.op->kind == OpKind::kContraction) value.share = target.product_cast_share;
        const LayerId producer = network.tensor(source).producer;
        if (producer == kNone || node_of[producer] < 0) continue;
        if (source == input && grouping.group_of[l] >= 0 && grouping.group_of[l] == grouping.group_of[producer])
          problem.links.push_back(
              {node_of[producer], node_of[l], target.pass_us(elements_of(spec, source), kBrokenBytes)});
      }
    }
  }
  for (TensorId id : network.outputs)
    for (TensorId source : sources[id])
      if (spec.type(id) == DataType::kFloat32) value_of(source).output = true;
  for (auto& [id, value] : values) problem.values.push_back(std::move(value));
  return problem;
}

namespace {

double roofline_us(const Specialization& spec, const Group& group, const Assignment& assignment, const Target& target) {
  double operations = 0, bytes = 0;
  const Precision p = assignment.precision[group.layers.front()];
  std::set<TensorId> inside;
  for (LayerId id : group.layers)
    for (TensorId output : spec.network->layer(id).outputs) inside.insert(output);
  for (LayerId id : group.layers) {
    const Layer& layer = spec.network->layer(id);
    operations += work_of(spec, layer).operations;
    for (TensorId input : present(layer.inputs))
      if (!inside.contains(input))
        bytes += elements_of(spec, input) *
                 (spec.is_constant(input) ? of_weights(p) : static_cast<double>(size_of(assignment.storage[input])));
  }
  for (TensorId output : spec.network->layer(group.layers.back()).outputs)
    if (output != kNone) bytes += elements_of(spec, output) * static_cast<double>(size_of(assignment.storage[output]));
  return target.launch_us + target.work_us(operations, bytes, target.has(p) ? p : Precision::kFP32);
}

/// What a kernel takes, and what of it is there however little it computes.
struct KernelTime {
  double us = 0, launch_us = 0;
};

KernelTime modelled(const Target& target, const KernelWork& work) {
  return {target.kernel_us(work), (*target.kernels)(launch_of(work), target.tflops)};
}

/// Per group.
std::vector<KernelTime> times_of(const Specialization& spec, const Grouping& grouping, const Assignment& assignment,
                                 const Target& target, const GroupTimes& times) {
  const std::vector<int> together = times.empty() && target.kernels == nullptr
                                        ? std::vector<int>(grouping.groups.size(), 1)
                                        : count_together(spec, grouping, &assignment);
  std::vector<KernelTime> result;
  for (const Group& group : grouping.groups) {
    const auto measured = times.find_like(group, group_precision(spec, group, assignment), together[result.size()]);
    if (measured) {
      result.push_back({*measured, std::min(*measured, target.launch_us)});
    } else if (target.kernels != nullptr) {
      const auto work = kernel_work(spec, group, assignment, together[result.size()]);
      result.push_back(work ? modelled(target, *work) : KernelTime());
    } else {
      result.push_back({roofline_us(spec, group, assignment, target), target.launch_us});
    }
  }
  return result;
}

}  // namespace

std::vector<double> group_times_us(const Specialization& spec, const Grouping& grouping, const Assignment& assignment,
                                   const Target& target) {
  std::vector<double> result;
  for (const KernelTime& time : times_of(spec, grouping, assignment, target, GroupTimes(spec, target.timed)))
    result.push_back(time.us);
  return result;
}

TimeModel::TimeModel(const Specialization& spec, Fusion fusion, Target target)
    : spec_(spec),
      fusion_(fusion),
      target_(std::move(target)),
      measured_(std::make_unique<GroupTimes>(spec, target_.timed)) {
  const std::size_t layers = spec.network->layers.size();
  Grouping alone;
  alone.group_of.assign(layers, kNone);
  problem_ =
      make_cost_problem(spec, alone, target_, IdMap<LayerId, std::vector<Precision>>(layers, {Precision::kFP32}));
  const std::vector<Body> bodies = spec.network->bodies();
  for (std::size_t b = 0; b < bodies.size(); ++b)
    if (spec.bodies[b] != nullptr) bodies_.emplace_back(bodies[b], TimeModel(*spec.bodies[b], fusion, target_));
}

TimeModel::~TimeModel() = default;
TimeModel::TimeModel(TimeModel&&) noexcept = default;

TimeModel::Coverage TimeModel::coverage(const Assignment& assignment) const {
  const Grouping grouping = fuse(spec_, assignment, fusion_);
  const std::vector<int> together = count_together(spec_, grouping, &assignment);
  Coverage result;
  for (const Group& group : grouping.groups) {
    const int of_several = together[static_cast<std::size_t>(result.groups++)];
    result.measured += measured_->find(group, group_precision(spec_, group, assignment), of_several) ? 1 : 0;
  }
  return result;
}

double TimeModel::weights_mb(const Assignment& assignment) const {
  double bytes = 0;
  for (const auto& [id, layer] : spec_.network->layers.items())
    if (spec_.numeric[id]) bytes += weight_bytes(work_of(spec_, layer), assignment.precision[id]);
  return bytes * 1e-6;
}

std::vector<TimeModel::LeftCast> TimeModel::casts_left(const Grouping& grouping, const Assignment& assignment) const {
  const auto form = [&](int node) -> const LayerForm& {
    return form_of(assignment.precision[problem_.nodes[node].layer]);
  };
  const auto read_type = [&](int node) {
    return form(node).is_of_weights() ? assignment.int8_output : form(node).read_type();
  };
  const auto is_product = [&](int node) {
    return spec_.network->layer(problem_.nodes[node].layer).op->kind == OpKind::kContraction;
  };
  const auto group_of = [&](int node) { return node < 0 ? int{kNone} : grouping.group_of[problem_.nodes[node].layer]; };
  std::vector<LeftCast> result;
  for (const CostProblem::Value& value : problem_.values) {
    const DataType own = value.producer < 0        ? DataType::kFloat32
                         : problem_.hands_integers ? read_type(value.producer)
                                                   : assignment.storage[value.tensor];
    std::map<DataType, bool> casts;  // Whether a product reads it.
    for (int consumer : value.consumers)
      if ((problem_.hands_integers || !form(consumer).is_quantized()) && read_type(consumer) != own &&
          (group_of(consumer) == kNone || group_of(consumer) != group_of(value.producer)))
        casts[read_type(consumer)] |= is_product(consumer);
    if (value.output && own != DataType::kFloat32) casts.try_emplace(DataType::kFloat32, false);
    for (const auto& [type, by_product] : casts) result.push_back({value.elements, value.pass_us, by_product});
  }
  return result;
}

std::vector<KernelWork> TimeModel::kernels(const Assignment& assignment) const {
  const Grouping grouping = fuse(spec_, assignment, fusion_);
  const std::vector<int> together = count_together(spec_, grouping, &assignment);
  std::vector<KernelWork> result;
  for (std::size_t g = 0; g < grouping.groups.size(); ++g)
    if (auto work = kernel_work(spec_, grouping.groups[g], assignment, together[g])) result.push_back(*work);
  for (const LeftCast& cast : casts_left(grouping, assignment)) result.push_back(cast_work(cast.elements, kCastBytes));
  result.push_back(run_work());
  return result;
}

TimeModel::Estimate TimeModel::estimate(const Assignment& assignment) const {
  const Grouping grouping = fuse(spec_, assignment, fusion_);
  Estimate result;
  for (const KernelTime& time : times_of(spec_, grouping, assignment, target_, *measured_)) {
    result.total_us += time.us;
    result.launches_us += time.launch_us;
  }
  for (const LeftCast& cast : casts_left(grouping, assignment)) {
    ++result.casts.count;
    result.launches_us +=
        (cast.by_product ? target_.product_cast_share : target_.cast_share) * std::min(cast.pass_us, target_.launch_us);
    (cast.by_product ? result.casts.product_passes_us : result.casts.other_passes_us) += cast.pass_us;
  }
  result.casts.total_us =
      target_.product_cast_share * result.casts.product_passes_us + target_.cast_share * result.casts.other_passes_us;
  result.total_us += result.casts.total_us;
  if (target_.kernels != nullptr && target_.timed == nullptr) {
    const KernelTime run = modelled(target_, run_work());
    result.total_us += run.us;
    result.launches_us += run.launch_us;
  }
  if (target_.weight_us_per_mb > 0)
    result.total_us += target_.weight_us_per_mb * std::max(0.0, weights_mb(assignment) - target_.cached_mb);
  for (const auto& [body, model] : bodies_) {
    const Estimate inside =
        model.estimate(assignment_of_body(assignment, body, model.spec_.inferred, /*constraints_hold=*/true, false));
    result.total_us += inside.total_us;
    result.launches_us += inside.launches_us;
    result.casts.count += inside.casts.count;
    result.casts.total_us += inside.casts.total_us;
  }
  return result;
}

}  // namespace ulpscope
