#include "calibration/scaling_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "calibration/calibrators.h"
#include "formats/stored_elements.h"

namespace ulpscope {
namespace {

/// Larger constants are not copied for the layers that read them: one exponent serves all.
constexpr std::int64_t kLargestCopy = 1 << 18;
/// Factors beyond it come from towers of squares, where exponents say nothing any more.
constexpr std::int64_t kLargestFactor = 1 << 12;
/// Since when operands of another shape need no attribute.
constexpr int kBroadcastOpset = 7;

/// What is solved for first: a constant takes up what is asked for, and insertions stay free, at 0.
enum Rank { kConstantRank, kRootRank, kSharedRank, kInsertionRank };

bool holds_mask(const Tensor& value) {
  return any_elements(value, [](std::span<const float> elements) {
    bool holds = false;
    for (float v : elements) holds |= !(std::fabs(v) < kMaskMagnitude);
    return holds;
  });
}

class Builder {
 public:
  explicit Builder(const Specialization& spec) : spec_(spec), network_(*spec.network) {
    model_.exponent.assign(network_.tensors.size(), Exponent());
    inserts_ = std::ranges::all_of(network_.layers, [](const Layer& layer) {
      return !layer.op->domain.empty() || layer.opset >= kBroadcastOpset;
    });
  }

  ScalingModel build() {
    for (const auto& [id, layer] : network_.layers.items())
      if (layer.op->kind != OpKind::kConstant) add(id, layer);
    for (TensorId id : network_.outputs) {
      pin(model_.exponent[id]);
      if (const auto shared = shared_.find(id); shared != shared_.end()) pin(shared->second);
    }
    for (TensorId id : network_.tensors.ids()) model_.exponent[id] = model_.system.reduced(model_.exponent[id]);
    for (auto& change : model_.changes) change.exponent = model_.system.reduced(change.exponent);
    return std::move(model_);
  }

 private:
  bool is_float(TensorId id) const { return id != kNone && is_floating(spec_.type(id)); }
  bool is_data(const Layer& layer, std::size_t i) const {
    return is_float(layer.input(i)) && ((layer.op->selects | layer.op->parameters) >> i & 1U) == 0;
  }
  /// By what comes before it.
  bool is_pinned(TensorId id) const { return !spec_.is_constant(id) && model_.exponent[id].is_zero(); }
  void pin(const Exponent& exponent) { model_.system.equate(exponent, {}); }
  Exponent variable(Rank rank) { return Exponent::of(model_.system.add_variable(rank)); }

  Exponent constant(LayerId id, std::size_t i, TensorId tensor, const Tensor& value) {
    if (value.type() != DataType::kFloat32) return {};
    const bool shared = value.size() > kLargestCopy;
    if (shared)
      if (const auto found = shared_.find(tensor); found != shared_.end()) return found->second;
    if (holds_mask(value)) return {};
    const Exponent exponent = variable(shared ? kSharedRank : kConstantRank);
    if (shared) shared_.emplace(tensor, exponent);
    model_.changes.push_back({shared ? ScaleEdit::Kind::kSharedConstant : ScaleEdit::Kind::kConstant, id,
                              static_cast<int>(i), tensor, exponent});
    return exponent;
  }

  Exponent get(LayerId id, std::size_t i) {
    const TensorId tensor = network_.layer(id).input(i);
    if (!is_float(tensor)) return {};
    if (const Tensor* value = stored_constant(network_, tensor)) return constant(id, i, tensor, *value);
    return model_.exponent[tensor];
  }

  /// The same, where a multiplication may be inserted in front.
  Exponent get_with_insertion(LayerId id, std::size_t i) {
    const TensorId tensor = network_.layer(id).input(i);
    const Exponent before = get(id, i);
    if (!inserts_ || spec_.is_constant(tensor) || spec_.type(tensor) != DataType::kFloat32) return before;
    const Exponent by = variable(kInsertionRank);
    model_.changes.push_back({ScaleEdit::Kind::kInsertion, id, static_cast<int>(i), tensor, by});
    return before.plus(by);
  }

  /// What operands of a sum and the like share. One that has to stay as it is, an input or what a function makes, is
  /// multiplied on its way in where the others are scaled: a residual stream begins so.
  Exponent together(LayerId id, const Layer& layer) {
    std::optional<Exponent> result;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      if (!is_data(layer, i)) continue;
      const Exponent own = is_pinned(layer.input(i)) ? get_with_insertion(id, i) : get(id, i);
      if (result) model_.system.equate(*result, own);
      if (!result) result = own;
    }
    return result.value_or(Exponent());
  }

  /// The exponent that operands from `first` on share. Nothing: there are none.
  std::optional<Exponent> shared_by(LayerId id, std::size_t first) {
    const Layer& layer = network_.layer(id);
    std::optional<Exponent> result;
    for (std::size_t i = first; i < layer.inputs.size(); ++i) {
      if (!is_data(layer, i)) continue;
      const Exponent own = get(id, i);
      if (result) model_.system.equate(*result, own);
      if (!result) result = own;
    }
    return result;
  }

  Exponent power(LayerId id, const Layer& layer) {
    const Tensor* to =
        layer.input(1) == kNone || !spec_.is_constant(layer.input(1)) ? nullptr : &spec_.value(layer.input(1));
    if (to == nullptr || to->size() == 0) return pinned(id, layer);
    const Tensor exact = to->cast(DataType::kFloat32);
    const std::span<const float> powers = exact.values<float>();
    if ((powers[0] != 2 && powers[0] != 3) || std::ranges::count(powers, powers[0]) != to->size())
      return pinned(id, layer);
    return get_with_insertion(id, 0).times(static_cast<std::int64_t>(powers[0]));
  }

  Exponent root(const Exponent& of) {
    const Exponent half = variable(kRootRank);
    model_.system.equate(of, half.times(2));
    return half;
  }

  Exponent pinned(LayerId id, const Layer& layer) {
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) pin(get(id, i));
    return {};
  }

  Exponent product(LayerId id, const Layer& layer) {
    const bool square = layer.input(0) == layer.input(1) && !stored_constant(network_, layer.input(0));
    const Exponent result = square ? get_with_insertion(id, 0).times(2) : get(id, 0).plus(get(id, 1));
    if (const auto added = shared_by(id, 2)) model_.system.equate(*added, result);
    return result;
  }

  Exponent normalization(LayerId id) {
    const Exponent before = get(id, 0);
    model_.changes.push_back({ScaleEdit::Kind::kEpsilon, id, 0, kNone, before.times(2)});
    return shared_by(id, 1).value_or(Exponent());
  }

  Exponent channel_normalization(LayerId id) {
    const Exponent before = get(id, 0), behind = get(id, 2);
    model_.system.equate(get(id, 3), before);
    pin(get(id, 4));
    model_.system.equate(get(id, 1), behind.plus(before, -1));
    return behind;
  }

  Exponent first(LayerId id, const Layer& layer) {
    for (std::size_t i = 1; i < layer.inputs.size(); ++i)
      if (is_data(layer, i)) pin(get(id, i));
    const bool sums = layer.op->kind == OpKind::kReduction && layer.op->exactness == Exactness::kRounds;
    const Exponent result = sums ? get_with_insertion(id, 0) : get(id, 0);
    // A cast to integers.
    if (!std::ranges::all_of(present(layer.outputs), [&](TensorId o) { return spec_.type(o) == DataType::kFloat32; }) &&
        layer.op->casts)
      pin(result);
    return result;
  }

  Exponent result_of(LayerId id, const Layer& layer) {
    switch (scaling_of(layer)) {
      case Scaling::kNone:
        return pinned(id, layer);
      case Scaling::kFirst:
        return first(id, layer);
      case Scaling::kTogether:
        return together(id, layer);
      case Scaling::kProduct:
        return product(id, layer);
      case Scaling::kQuotient:
        return get(id, 0).plus(get(id, 1), -1);
      case Scaling::kPower:
        return power(id, layer);
      case Scaling::kSquare:
        return get_with_insertion(id, 0).times(2);
      case Scaling::kRoot:
        return root(get(id, 0));
      case Scaling::kInverse:
        return get(id, 0).times(-1);
      case Scaling::kInvariant:
        shared_by(id, 0);
        return {};
      case Scaling::kNormalization:
        return normalization(id);
      case Scaling::kChannelNormalization:
        return channel_normalization(id);
    }
    return pinned(id, layer);
  }

  void add(LayerId id, const Layer& layer) {
    const bool concerned = std::ranges::any_of(layer.inputs, [&](TensorId i) { return is_float(i); });
    Exponent result = concerned ? result_of(id, layer) : Exponent();
    if (result.largest_factor() > kLargestFactor) {
      pin(result);
      result = {};
    }
    for (TensorId output : present(layer.outputs)) {
      if (spec_.type(output) == DataType::kFloat32)
        model_.exponent[output] = result;
      else if (is_float(output))
        pin(result);
    }
  }

  const Specialization& spec_;
  const Network& network_;
  ScalingModel model_;
  std::map<TensorId, Exponent> shared_;
  bool inserts_ = true;
};

}  // namespace

Scaling scaling_of(const Layer& layer) {
  return layer.op->scaling == nullptr ? Scaling::kNone : layer.op->scaling(layer);
}

const Tensor* stored_constant(const Network& network, TensorId id) {
  const TensorInfo& info = network.tensor(id);
  const bool stored = info.producer == kNone || network.layer(info.producer).op->kind == OpKind::kConstant;
  return info.value && stored ? &info.value : nullptr;
}

ScalingModel scaling_model(const Specialization& spec) { return Builder(spec).build(); }

namespace {

/// Where a layer leaves its input and its output to themselves: a multiplication may be inserted, or a factor is a
/// constant of its own.
std::set<std::pair<LayerId, int>> free_inputs(const Specialization& spec, const ScalingModel& model) {
  std::set<std::pair<LayerId, int>> result;
  for (const auto& change : model.changes) {
    const Scaling scaling = scaling_of(spec.network->layer(change.layer));
    if (change.kind == ScaleEdit::Kind::kInsertion) result.insert({change.layer, change.input});
    const bool own = change.kind == ScaleEdit::Kind::kConstant ||
                     (change.kind == ScaleEdit::Kind::kSharedConstant && spec.consumers[change.tensor].size() == 1);
    const bool factor =
        scaling == Scaling::kProduct || scaling == Scaling::kQuotient || scaling == Scaling::kChannelNormalization;
    if (own && factor && change.input < 2) result.insert({{change.layer, 0}, {change.layer, 1}});
  }
  return result;
}

/// The tensors of a layer whose exponents move together.
std::set<TensorId> tied_by(const Specialization& spec, LayerId id, const std::set<std::pair<LayerId, int>>& free) {
  const Layer& layer = spec.network->layer(id);
  std::set<TensorId> result;
  for (std::size_t i = 0; i < layer.inputs.size(); ++i)
    if (layer.input(i) != kNone && !free.contains({id, static_cast<int>(i)})) result.insert(layer.input(i));
  for (TensorId output : present(layer.outputs)) result.insert(output);
  std::erase_if(result, [&](TensorId each) { return !is_floating(spec.type(each)) || spec.is_constant(each); });
  return result;
}

}  // namespace

std::vector<std::string> pins_of(const Specialization& spec, const ScalingModel& model, TensorId tensor,
                                 std::size_t most) {
  const Network& network = *spec.network;
  const auto free = free_inputs(spec, model);
  std::vector<std::string> pins;
  std::deque<TensorId> open{tensor};
  std::set<TensorId> seen{tensor};
  std::set<LayerId> passed;
  while (!open.empty() && pins.size() < most) {
    const TensorId id = open.front();
    open.pop_front();
    const TensorInfo& info = network.tensor(id);
    if (network.is_output(id)) pins.push_back(fmt::format("output '{}'", info.name));
    if (std::ranges::find(network.inputs, id) != network.inputs.end())
      pins.push_back(fmt::format("input '{}'", info.name));
    std::vector<LayerId> layers = spec.consumers[id];
    if (info.producer != kNone) layers.push_back(info.producer);
    for (LayerId layer : layers) {
      const Layer& reader = network.layer(layer);
      const std::set<TensorId> tied = tied_by(spec, layer, free);
      if (!tied.contains(id) || !passed.insert(layer).second) continue;
      const Scaling scaling = scaling_of(reader);
      if (scaling == Scaling::kNone) {
        pins.push_back(fmt::format("'{}' ({})", reader.name, reader.op->name));
      } else if (scaling != Scaling::kNormalization && scaling != Scaling::kInvariant) {
        for (TensorId next : tied)
          if (seen.insert(next).second) open.push_back(next);
      }
    }
  }
  if (pins.size() > most) pins.resize(most);
  return pins;
}

}  // namespace ulpscope
