#include "engine/fusion.h"

#include <algorithm>
#include <array>

#include "engine/element_readers.h"
#include "engine/int8.h"

namespace ulpscope {

std::string_view name_of(GroupKind kind) noexcept {
  static constexpr std::array<std::string_view, 5> kNames{"single", "pointwise", "contraction", "row", "attention"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool leaves_group(const Specialization& spec, const Group& group, TensorId id) {
  return spec.output[id] || std::ranges::any_of(spec.consumers[id], [&](LayerId reader) {
           return std::ranges::find(group.layers, reader) == group.layers.end();
         });
}

std::string group_name(const Network& network, const Group& group) {
  std::string name;
  for (LayerId id : group.layers) name += (name.empty() ? "" : " + ") + network.layer(id).name;
  return name;
}

namespace {

std::int64_t rank_of(const Specialization& spec, TensorId id) {
  return id != kNone && spec.shape(id) ? static_cast<std::int64_t>(spec.shape(id)->size()) : -1;
}

}  // namespace

int row_dimensions(const Specialization& spec, const Layer& layer) {
  const std::int64_t rank = rank_of(spec, layer.input(0));
  // Reductions are rows whatever they compute; of normalizations, those with a program.
  const bool normalizes = layer.op->kind == OpKind::kNormalization && layer.op->function != Function::kNone;
  if (rank < 1 || layer.op->axes == nullptr ||
      (layer.op->kind != OpKind::kReduction && layer.op->kind != OpKind::kSoftmax && !normalizes))
    return 0;
  const TensorId listed = layer.op->kind == OpKind::kReduction ? layer.input(1) : kNone;
  if (listed != kNone && !spec.is_constant(listed)) return 0;
  const auto axes = layer.op->axes(layer, rank, listed == kNone ? nullptr : &spec.value(listed));
  if (!axes || axes->empty() || axes->front() != rank - static_cast<std::int64_t>(axes->size())) return 0;
  return static_cast<int>(axes->size());
}

IdMap<TensorId, char> open_tensors(const Specialization& spec) {
  IdMap<TensorId, char> result(spec.network->tensors.size(), 0);
  for (const auto& [l, layer] : spec.network->layers.items()) {
    if (spec.folded[l]) continue;
    const bool open =
        std::ranges::any_of(present(layer.inputs), [&](TensorId id) { return result[id] != 0; }) ||
        std::ranges::any_of(present(layer.outputs), [&](TensorId id) { return !spec.shape(id).has_value(); });
    for (TensorId output : present(layer.outputs)) result[output] = open ? 1 : 0;
  }
  return result;
}

bool is_scale_shift(const Specialization& spec, const Layer& layer) {
  if (layer.op->function != Function::kBatchNormalization || layer.inputs.size() < 5) return false;
  if (layer.attributes.integer("training_mode", 0) != 0) return false;
  if (layer.opset < 9 && layer.attributes.integer("spatial", 1) == 0) return false;  // Not one per channel.
  for (std::size_t i = 1; i < 5; ++i)
    if (layer.inputs[i] == kNone || spec.value(layer.inputs[i]).type() != DataType::kFloat32) return false;
  return layer.has_one_output();
}

namespace {

/// Grows groups layer by layer. A group runs where its last layer stands; so a group may take in a layer only if
/// nobody outside of the group, and standing before that layer, reads what the group computes. That keeps the order of
/// groups free of cycles without any search.
class Fuser {
 public:
  Fuser(const Specialization& spec, const Assignment& assignment, Fusion level)
      : spec_(spec),
        network_(*spec.network),
        assignment_(assignment),
        level_(level),
        readings_(find_element_readers(spec, assignment)),
        open_(open_tensors(spec)),
        group_of_(network_.layers.size(), kNone) {}

  Grouping run() {
    for (LayerId id : network_.layers.ids()) {
      if (spec_.folded[id]) continue;
      const Role role = role_of(id);
      const LayerId product = product_to_follow(id);
      int group = product != kNone ? group_of_[product] : level_ == Fusion::kNone ? kNone : choose_group(id, role);
      if (group == kNone)
        group = open_group(id, role);
      else
        join(group, id, role);
    }
    if (level_ == Fusion::kFull) find_attention();
    return finish();
  }

 private:
  enum class Role : std::uint8_t { kAlone, kPointwise, kContraction, kRow };

  struct Draft {
    std::vector<LayerId> layers;
    GroupKind kind = GroupKind::kSingle;
    Role opened_as = Role::kAlone;
    Shape domain;
    int row_dims = 0;
    bool merged = false;
  };

  /// The product of integers that this layer belongs to whatever the level: its bias, or the Cast to what it stores.
  LayerId product_to_follow(LayerId id) const {
    if (const LayerId product = int8_product_of(id); product != kNone) return product;
    const LayerId product = product_of_cast(spec_, id);
    if (product == kNone || !is_of_elements(product)) return kNone;
    const LayerId before = network_.tensor(network_.layer(id).inputs[0]).producer;
    if (assignment_.precision[product] != Precision::kFP32 || group_of_[before] != group_of_[product] ||
        !stays_inside(network_.layer(id).inputs[0]))
      return kNone;
    return product;
  }

  Role role_of(LayerId id) const {
    const Layer& layer = network_.layer(id);
    if (!spec_.numeric[id] || !layer.has_one_output() || !spec_.shape(layer.outputs[0]) ||
        !is_floating(spec_.type(layer.outputs[0])) || spec_.type(layer.outputs[0]) == DataType::kFloat64)
      return Role::kAlone;
    for (TensorId input : present(layer.inputs))
      if (!spec_.shape(input)) return Role::kAlone;
    if (layer.op->kind == OpKind::kContraction) return Role::kContraction;
    // Other int8 layers read integers made of stored values and store what they compute: no neighbor joins them.
    const bool is_alone = is_quantized(assignment_.precision[id]) || readings_[id] == Reading::kDequantized;
    if (is_alone && int8_product_of(id) == kNone) return Role::kAlone;
    if (layer.op->kind == OpKind::kPointwise || is_scale_shift(spec_, layer)) return Role::kPointwise;
    if (level_ == Fusion::kFull && row_dimensions(spec_, layer) > 0) return Role::kRow;
    return Role::kAlone;
  }

  /// The shape that the layer works over: its output's, for a reduction its input's.
  const Shape& domain_of(LayerId id, Role role) const {
    const Layer& layer = network_.layer(id);
    return *spec_.shape(role == Role::kRow ? layer.inputs[0] : layer.outputs[0]);
  }

  static Shape row_shape(const Shape& domain, int row_dims) {
    Shape shape = domain;
    for (std::size_t i = shape.size() - static_cast<std::size_t>(row_dims); i < shape.size(); ++i) shape[i] = 1;
    return shape;
  }

  bool stays_inside(TensorId id) const {
    // Network outputs and tensors with a requested type are stored.
    if (spec_.output[id] || assignment_.pinned[id]) return false;
    if (feeds_output_cast(id)) return false;
    return assignment_.storage[id] == stored_by(network_.tensor(id).producer);
  }

  /// A network output in another float type: a typed file has the stored value and a Cast before the output.
  bool feeds_output_cast(TensorId id) const {
    for (LayerId consumer : spec_.consumers[id]) {
      const Layer& layer = network_.layer(consumer);
      if (layer.op->function == Function::kCast && spec_.output[layer.outputs[0]] &&
          is_floating(spec_.type(layer.outputs[0])))
        return true;
    }
    return false;
  }

  bool same_precision(LayerId a, LayerId b) const { return stored_by(a) == stored_by(b); }

  /// Of a product_of_cast(): it computes with the elements of the file, or with the numbers that blocks of them are.
  bool is_of_elements(LayerId product) const {
    return is_float(assignment_.precision[product]) || reads_elements(readings_[product]);
  }

  /// The Cast that a product of elements stores with has the type that it casts to, whatever the product's is.
  DataType stored_by(LayerId id) const {
    const LayerId product = product_of_cast(spec_, id);
    const bool stores = product != kNone && is_of_elements(product);
    return stores ? spec_.type(network_.layer(id).outputs[0]) : assignment_.stored_by(id);
  }

  /// The int8 product whose bias this layer is: one group with it at every level, so that the sum is rounded once.
  LayerId int8_product_of(LayerId id) const {
    if (readings_[id] != Reading::kBias) return kNone;
    const LayerId product = spec_.product_of_bias(id);
    return stays_inside(network_.layer(product).outputs[0]) ? product : kNone;
  }

  /// Nobody outside of the group and before `position` reads what its layers compute.
  bool can_extend_to(const Draft& draft, int group, LayerId position) const {
    for (LayerId member : draft.layers)
      for (TensorId output : present(network_.layer(member).outputs))
        for (LayerId consumer : spec_.consumers[output])
          if (consumer < position && group_of_[consumer] != group && !spec_.folded[consumer]) return false;
    return true;
  }

  /// What the layer reads of a group is, element by element, what the group has for its positions or for its rows. A
  /// reduction without keepdims has dimensions that broadcast to others than the rows they came from.
  bool reads_aligned(const Draft& draft, int group, LayerId id) const {
    return std::ranges::all_of(network_.layer(id).inputs, [&](TensorId input) {
      if (input == kNone || spec_.is_constant(input)) return true;
      const LayerId producer = network_.tensor(input).producer;
      if (producer == kNone || group_of_[producer] != group) return true;
      const Shape& shape = *spec_.shape(input);
      return shape == draft.domain || shape == row_shape(draft.domain, draft.row_dims) || num_elements(shape) == 1;
    });
  }

  /// A product of elements whose operands have their shapes at run time only. It runs layer by layer, and a Cast behind
  /// it in a typed file is one that rounds.
  bool stores_at_once(LayerId product) const {
    const auto& inputs = network_.layer(product).inputs;
    return std::ranges::any_of(present(inputs), [&](TensorId id) { return open_[id] != 0; }) &&
           (reads_elements(readings_[product]) || storing_cast(spec_, product) != kNone);
  }

  bool fits(const Draft& draft, LayerId id, Role role) const {
    const Shape& output = *spec_.shape(network_.layer(id).outputs[0]);
    switch (draft.kind) {
      case GroupKind::kContraction:
        return role == Role::kPointwise && output == draft.domain && !stores_at_once(draft.layers.front());
      case GroupKind::kPointwise:
      case GroupKind::kRow: {
        if (role == Role::kRow) {
          const int dims = row_dimensions(spec_, network_.layer(id));
          return domain_of(id, role) == draft.domain && (draft.row_dims == 0 || draft.row_dims == dims);
        }
        if (role != Role::kPointwise) return false;
        return output == draft.domain || (draft.row_dims > 0 && output == row_shape(draft.domain, draft.row_dims));
      }
      default:
        return false;
    }
  }

  int choose_group(LayerId id, Role role) {
    if (role == Role::kAlone || role == Role::kContraction) return kNone;
    std::vector<int> candidates;
    for (TensorId input : present(network_.layer(id).inputs)) {
      if (spec_.is_constant(input)) continue;
      const LayerId producer = network_.tensor(input).producer;
      if (producer == kNone) continue;
      const int group = group_of_[producer];
      if (group == kNone || std::ranges::find(candidates, group) != candidates.end()) continue;
      const Draft& draft = drafts_[group];
      if (stays_inside(input) && same_precision(producer, id) && fits(draft, id, role) &&
          reads_aligned(draft, group, id) && can_extend_to(draft, group, id))
        candidates.push_back(group);
    }
    if (candidates.empty()) return kNone;
    // The most recent one: its values are the freshest. Further ones are merged into it where both are free of
    // products.
    std::ranges::sort(candidates, [&](int a, int b) { return drafts_[a].layers.back() > drafts_[b].layers.back(); });
    const int chosen = candidates.front();
    for (std::size_t i = 1; i < candidates.size(); ++i) merge(chosen, candidates[i], id);
    return chosen;
  }

  void merge(int into, int from, LayerId position) {
    Draft& a = drafts_[into];
    Draft& b = drafts_[from];
    const auto free = [](const Draft& d) { return d.kind == GroupKind::kPointwise || d.kind == GroupKind::kRow; };
    if (!free(a) || !free(b) || a.domain != b.domain ||
        (a.row_dims != 0 && b.row_dims != 0 && a.row_dims != b.row_dims))
      return;
    if (!can_extend_to(b, from, position)) return;
    a.layers.insert(a.layers.end(), b.layers.begin(), b.layers.end());
    std::ranges::sort(a.layers);
    a.row_dims = std::max(a.row_dims, b.row_dims);
    if (b.kind == GroupKind::kRow) a.kind = GroupKind::kRow;
    for (LayerId member : b.layers) group_of_[member] = into;
    b.merged = true;
    b.layers.clear();
  }

  int open_group(LayerId id, Role role) {
    Draft draft;
    draft.layers = {id};
    draft.opened_as = role;
    switch (role) {
      case Role::kPointwise:
        draft.kind = GroupKind::kPointwise;
        break;
      case Role::kContraction:
        draft.kind = GroupKind::kContraction;
        break;
      case Role::kRow:
        draft.kind = GroupKind::kRow;
        draft.row_dims = row_dimensions(spec_, network_.layer(id));
        break;
      case Role::kAlone:
        break;
    }
    if (role != Role::kAlone) draft.domain = domain_of(id, role);
    group_of_[id] = static_cast<int>(drafts_.size());
    drafts_.push_back(std::move(draft));
    return static_cast<int>(drafts_.size()) - 1;
  }

  void join(int group, LayerId id, Role role) {
    Draft& draft = drafts_[group];
    draft.layers.push_back(id);
    if (role == Role::kRow) {
      draft.kind = GroupKind::kRow;
      draft.row_dims = row_dimensions(spec_, network_.layer(id));
    }
    group_of_[id] = group;
  }

  /// product -> softmax -> product, of one precision, with nothing else reading in between.
  void find_attention() {
    for (const auto& [s, softmax] : network_.layers.items()) {
      const int row_group = group_of_[s];
      if (softmax.op->function != Function::kSoftmax || row_group == kNone) continue;
      const Draft& row = drafts_[row_group];
      if (row.kind != GroupKind::kRow) continue;
      const int first = only_source(row);
      const int last = only_sink(row, row_group);
      if (first == kNone || last == kNone || first == last) continue;
      const Draft& a = drafts_[first];
      const Draft& b = drafts_[last];
      if (a.kind != GroupKind::kContraction || b.kind != GroupKind::kContraction) continue;
      if (network_.layer(a.layers.front()).op->function != Function::kMatMul ||
          network_.layer(b.layers.front()).op->function != Function::kMatMul)
        continue;
      // An int8 product quantizes stored values.
      if (reads_elements(readings_[a.layers.front()]) || reads_elements(readings_[b.layers.front()])) continue;
      if (!same_precision(a.layers.front(), row.layers.front()) ||
          !same_precision(b.layers.front(), row.layers.front()))
        continue;
      if (!read_only_by(first, {first, row_group, last}) || !read_only_by(row_group, {first, row_group, last}))
        continue;
      Draft& target = drafts_[last];
      for (int source : {first, row_group}) {
        Draft& draft = drafts_[source];
        target.layers.insert(target.layers.end(), draft.layers.begin(), draft.layers.end());
        for (LayerId member : draft.layers) group_of_[member] = last;
        draft.merged = true;
        draft.layers.clear();
      }
      std::ranges::sort(target.layers);
      target.kind = GroupKind::kAttention;
    }
  }

  /// The one group with a product whose values this one reads, when they stay inside.
  int only_source(const Draft& draft) const {
    int source = kNone;
    for (LayerId member : draft.layers)
      for (TensorId input : present(network_.layer(member).inputs)) {
        if (spec_.is_constant(input) || network_.tensor(input).producer == kNone) continue;
        const int group = group_of_[network_.tensor(input).producer];
        if (group == kNone || drafts_[group].kind != GroupKind::kContraction) continue;
        // What comes in another precision is stored: an operand like any other.
        if (!same_precision(network_.tensor(input).producer, member)) continue;
        if (source != kNone && source != group) return kNone;
        if (!stays_inside(input)) return kNone;
        source = group;
      }
    return source;
  }

  int only_sink(const Draft& draft, int self) const {
    int sink = kNone;
    for (LayerId member : draft.layers) {
      const TensorId output = network_.layer(member).outputs[0];
      for (LayerId consumer : spec_.consumers[output]) {
        const int group = group_of_[consumer];
        if (group == self) continue;
        if (sink != kNone || group == kNone || spec_.output[output]) return kNone;
        if (drafts_[group].layers.front() != consumer) return kNone;
        sink = group;
      }
    }
    return sink;
  }

  /// Scores that somebody else reads would have to be stored: no GPU keeps such an attention in one kernel.
  bool read_only_by(int group, std::initializer_list<int> family) const {
    for (LayerId member : drafts_[group].layers)
      for (LayerId consumer : spec_.consumers[network_.layer(member).outputs[0]]) {
        const int other = group_of_[consumer];
        if (std::ranges::find(family, other) == family.end()) return false;
      }
    return true;
  }

  Grouping finish() {
    Grouping result;
    std::vector<int> order;
    for (std::size_t g = 0; g < drafts_.size(); ++g)
      if (!drafts_[g].merged) order.push_back(static_cast<int>(g));
    std::ranges::sort(order, [&](int a, int b) { return drafts_[a].layers.back() < drafts_[b].layers.back(); });
    result.group_of.assign(network_.layers.size(), kNone);
    result.internal.assign(network_.tensors.size(), 0);
    for (int g : order) {
      Draft& draft = drafts_[g];
      Group group{draft.kind, std::move(draft.layers)};
      if (group.layers.size() == 1) group.kind = GroupKind::kSingle;
      for (LayerId member : group.layers) result.group_of[member] = static_cast<int>(result.groups.size());
      result.groups.push_back(std::move(group));
    }
    for (const Group& group : result.groups)
      for (LayerId member : group.layers) mark_internal(result, group, member);
    return result;
  }

  void mark_internal(Grouping& result, const Group& group, LayerId member) const {
    if (group.layers.size() == 1) return;
    const TensorId output = network_.layer(member).outputs[0];
    if (!stays_inside(output)) return;
    for (LayerId consumer : spec_.consumers[output]) {
      if (result.group_of[consumer] != result.group_of[member]) return;
      // The second product of an attention group reads its operand in the group's precision, as tensor cores do.
      if (network_.layer(consumer).op->kind == OpKind::kContraction) return;
    }
    result.internal[output] = 1;
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment& assignment_;
  const Fusion level_;
  const Readings readings_;
  const IdMap<TensorId, char> open_;
  IdMap<LayerId, int> group_of_;
  std::vector<Draft> drafts_;
};

}  // namespace

Grouping fuse(const Specialization& spec, const Assignment& assignment, Fusion level) {
  return Fuser(spec, assignment, level).run();
}

}  // namespace ulpscope
