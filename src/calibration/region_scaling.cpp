#include "calibration/region_scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "calibration/constant_path.h"
#include "calibration/exponents.h"
#include "calibration/row_range.h"
#include "calibration/scaling_model.h"
#include "calibration/zero_rows.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/int8.h"

namespace ulpscope {
namespace {

const double kLargestFp16Exponent = std::log2(65504.0);
/// Of fp16: the normal numbers, and the smallest of all.
constexpr int kNormalFp16Exponent = -14, kSmallestFp16Exponent = -24;

/// Values beyond fp16, or so near that other samples may be.
bool leaves_fp16(const RowRange& range) {
  return range.largest() * 2 > 65504 || range.share_below(kSmallestFp16Exponent - 1) > 0;
}

constexpr double kHeadroom = 3;  // Bits: a factor of 8.
/// A value beyond the range, and each bit by which it is; a bit of headroom counts 1.
constexpr double kBeyond = 50, kPerBitBeyond = 100;
/// Per squared bit that a row lies below the normal numbers of fp16, up to as many bits as count.
constexpr double kPerLostBit = 0.5, kMostLostBits = 14;
/// A constant that changes, and a layer that is added.
constexpr double kChange = 0.003, kInsertion = 1;
/// Exponents of inserted factors, which are normal numbers of fp16.
constexpr int kLeastInserted = -14, kMostInserted = 15;
constexpr double kForbidden = std::numeric_limits<double>::infinity();

template <typename Cost>
ExponentCost tabulated(Exponent exponent, const Cost& cost) {
  ExponentCost result{std::move(exponent), {}};
  for (int e = -ExponentCost::kLargest; e <= ExponentCost::kLargest; ++e)
    result.cost[static_cast<std::size_t>(e + ExponentCost::kLargest)] = cost(e);
  return result;
}

double cost_in_fp16(const RowRange& range, int exponent, double row_weight) {
  if (range.largest() == 0) return 0;
  const double beyond = std::log2(range.largest()) + exponent - kLargestFp16Exponent;
  return (beyond > 0 ? kBeyond + kPerBitBeyond * beyond : 0) + std::max(0.0, beyond + kHeadroom) +
         row_weight * kPerLostBit * range.lost_bits(kNormalFp16Exponent + 1 - exponent, kMostLostBits);
}

bool becomes_zero(double magnitude, int exponent) {
  return !is_zero_in_fp16(magnitude) && is_zero_in_fp16(std::ldexp(magnitude, exponent));
}

bool stays_normal(double smallest, double largest, int exponent) {
  return exponent == 0 || (std::ldexp(smallest, exponent) >= std::numeric_limits<float>::min() &&
                           std::ldexp(largest, exponent) <= std::numeric_limits<float>::max());
}

/// Of a tensor in fp16. `row_weight`: of what small rows lose.
ExponentCost range_cost(Exponent exponent, const RowRange& range, double row_weight = 1) {
  return tabulated(std::move(exponent), [&](int e) {
    double cost = cost_in_fp16(range, e, row_weight);
    // What rows gain by larger values is no reason to let data that are larger than the samples overflow.
    const double short_of = std::log2(range.largest()) + e + kHeadroom - kLargestFp16Exponent;
    if (e > 0 && range.largest() > 0 && short_of > 0) cost += kBeyond + kPerBitBeyond * short_of;
    return cost;
  });
}

/// Of changing a constant, which stays exact in fp32. `in_fp16`: a layer reads it in fp16, where it must not become 0
/// if it is not now: `vanishing` is what that costs.
ExponentCost constant_cost(Exponent exponent, const RowRange& range, bool in_fp16, bool bears_lost_bits,
                           double vanishing) {
  constexpr double kBornRow = 0.02;
  return tabulated(std::move(exponent), [&](int e) {
    if (range.largest() == 0) return 0.0;
    if (!stays_normal(range.smallest(), range.largest(), e)) return kForbidden;
    double cost = e == 0 ? 0 : kChange;
    if (!in_fp16) return cost;
    if (becomes_zero(range.largest(), e)) cost += vanishing;
    return cost + cost_in_fp16(range, e, bears_lost_bits ? kBornRow : 1);
  });
}

/// Of an inserted factor, which fp16 must hold.
ExponentCost insertion_cost(Exponent exponent) {
  return tabulated(std::move(exponent), [](int e) {
    return e == 0 ? 0 : e >= kLeastInserted && e <= kMostInserted ? kInsertion : kForbidden;
  });
}

/// Of an epsilon that is multiplied by 2^exponent and has to stay a normal number of float32.
ExponentCost epsilon_cost(Exponent exponent, float epsilon) {
  return tabulated(std::move(exponent), [&](int e) {
    return e == 0 ? 0 : epsilon == 0 || stays_normal(epsilon, epsilon, e) ? kChange : kForbidden;
  });
}

/// What it costs that elements of a constant vanish in fp16, or one whose layers stay higher then. Where the samples
/// have nothing but it (a row of zeros), more than any range.
constexpr double kVanishing = 2, kVanishingAlone = 1e5;
/// Rows of a constant that are looked at.
constexpr std::int64_t kConstantRows = 1024;
constexpr std::size_t kNamedPins = 3, kNamedTensors = 8;

class Finder {
 public:
  Finder(const Specialization& spec, const Assignment& low, const std::map<std::string, float>& scales)
      : spec_(spec), network_(*spec.network), low_(low), scales_(scales), model_(scaling_model(spec)) {}

  RegionScaling find(std::span<const TensorMap> samples, const CalibrationOptions& options, const WeightCache& weights,
                     const std::string& backend) {
    measure(samples, options, weights, backend);
    if (std::ranges::none_of(tensors_, [&](const Measured& each) { return leaves_fp16(each.range); })) return {};
    const auto start = std::chrono::steady_clock::now();
    add_costs();
    values_ = cheapest_values(model_.system.variables(), costs_);
    RegionScaling result;
    for (const std::vector<int>& region : regions()) {
      std::vector<int> own(values_.size(), 0);
      for (int variable : region) own[static_cast<std::size_t>(variable)] = values_[static_cast<std::size_t>(variable)];
      if (auto repair = repair_of(own))
        result.regions.push_back(std::move(*repair));
      else
        for (int variable : region) values_[static_cast<std::size_t>(variable)] = 0;
    }
    log_verbose("[repair] {} exponents of {} changes: {} region(s) in {:.2f} s", values_.size(), model_.changes.size(),
                result.regions.size(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    result.beyond = still_beyond();
    return result;
  }

 private:
  struct Measured {
    TensorId tensor = kNone;
    RowRange range;
  };

  bool in_fp16(LayerId id) const { return low_.precision[id] == Precision::kFP16; }
  bool in_fp16(TensorId id) const {
    const LayerId producer = network_.tensor(id).producer;
    return (producer != kNone && in_fp16(producer)) ||
           std::ranges::any_of(spec_.consumers[id], [&](LayerId reader) { return in_fp16(reader); });
  }

  void measure(std::span<const TensorMap> samples, const CalibrationOptions& options, const WeightCache& weights,
               const std::string& backend) {
    std::vector<TensorId> ids;
    for (TensorId id : calibrated_tensors(spec_))
      if (network_.tensor(id).producer != kNone && spec_.type(id) == DataType::kFloat32 && in_fp16(id))
        ids.push_back(id);
    if (ids.empty()) return;
    const std::vector<RowRange> ranges = row_ranges(network_, ids, samples, options, weights, backend);
    for (std::size_t t = 0; t < ids.size(); ++t) tensors_.push_back({ids[t], ranges[t]});
    for (const Measured& each : tensors_) range_of_[each.tensor] = &each.range;
  }

  /// A constant is added to a tensor some of whose rows are 0.
  bool is_alone(const ScalingModel::Change& change) const {
    const Layer& layer = network_.layer(change.layer);
    return std::ranges::any_of(present(layer.inputs), [&](TensorId id) {
      const auto range = range_of_.find(id);
      return range != range_of_.end() && range->second->has_zero_rows();
    });
  }

  /// One number that is added to others, or a power of two, which has no bits to lose.
  bool bears_lost_bits(const ScalingModel::Change& change) const {
    const Tensor& value = *stored_constant(network_, change.tensor);
    int exponent = 0;
    return value.size() == 1 && (scaling_of(network_.layer(change.layer)) == Scaling::kTogether ||
                                 std::frexp(value.data<float>()[0], &exponent) == 0.5F);
  }

  /// What it costs that the constant becomes 0. One number must not where it may be all that is left: where data are 0
  /// (an epsilon). Layers on its way can stay high.
  double vanishing(const ScalingModel::Change& change, const RowRange& range) {
    if (range.smallest() == range.largest()) {
      auto path = change.kind == ScaleEdit::Kind::kConstant
                      ? constant_path(spec_, change, range.smallest(), range.largest())
                      : std::nullopt;
      if (!path) return kForbidden;
      if (!zero_rows_) zero_rows_.emplace(spec_);
      const auto may_be_zero = [&](TensorId id) { return id != change.tensor && zero_rows_->possible(id); };
      if (std::ranges::any_of(present(network_.layer(change.layer).inputs), may_be_zero))
        paths_.emplace_back(&change, std::move(*path));
    }
    return is_alone(change) ? kVanishingAlone : kVanishing;
  }

  /// Of constants that are computed from others ahead of a run.
  void add_costs_of_folded() {
    for (TensorId id : network_.tensors.ids()) {
      const Exponent& exponent = model_.exponent[id];
      if (exponent.is_zero() || !spec_.is_constant(id) || stored_constant(network_, id) || !in_fp16(id)) continue;
      RowRange range;
      range.add(spec_.value(id), kConstantRows);
      if (range.smallest() != range.largest()) continue;
      costs_.push_back(tabulated(exponent, [&](int e) { return becomes_zero(range.largest(), e) ? kForbidden : 0.0; }));
    }
  }

  void add_costs() {
    for (const Measured& each : tensors_)
      if (const Exponent& exponent = model_.exponent[each.tensor]; !exponent.is_zero())
        costs_.push_back(range_cost(exponent, each.range));
    const auto& changes = model_.changes;
    std::map<TensorId, RowRange> constants;
    for (const auto& change : changes)
      if (change.kind == ScaleEdit::Kind::kConstant || change.kind == ScaleEdit::Kind::kSharedConstant)
        if (!change.exponent.is_zero()) constants.try_emplace(change.tensor);
    std::vector<std::pair<TensorId, RowRange*>> list;
    for (auto& [id, range] : constants) list.emplace_back(id, &range);
    parallel_each(list.size(), [&](std::size_t i) {
      list[i].second->add(*stored_constant(network_, list[i].first), kConstantRows);
    });
    for (const auto& change : changes) {
      if (change.exponent.is_zero()) continue;
      const Layer& layer = network_.layer(change.layer);
      switch (change.kind) {
        case ScaleEdit::Kind::kInsertion:
          costs_.push_back(insertion_cost(change.exponent));
          if (const auto range = range_of_.find(change.tensor); range != range_of_.end())
            costs_.push_back(range_cost(model_.exponent[change.tensor].plus(change.exponent), *range->second));
          break;
        case ScaleEdit::Kind::kEpsilon:
          costs_.push_back(epsilon_cost(change.exponent, layer.attributes.real("epsilon", kAbsentEpsilon)));
          break;
        default: {
          const RowRange& range = constants.at(change.tensor);
          const bool read = in_fp16(change.layer) || layer.op->precision == PrecisionRule::kMovement;
          costs_.push_back(constant_cost(change.exponent, range, read, bears_lost_bits(change),
                                         read ? vanishing(change, range) : 0));
        }
      }
    }
    add_costs_of_folded();
  }

  /// The variables that are not 0, by region: those that a tensor or a change have in common belong together.
  std::vector<std::vector<int>> regions() const {
    std::vector<int> parent(values_.size());
    std::iota(parent.begin(), parent.end(), 0);
    const auto root = [&](int v) {
      while (parent[static_cast<std::size_t>(v)] != v) v = parent[static_cast<std::size_t>(v)];
      return v;
    };
    for (const ExponentCost& cost : costs_) {
      int first = -1;
      for (const auto& [variable, factor] : cost.exponent.terms()) {
        if (values_[static_cast<std::size_t>(variable)] == 0) continue;
        const int own = root(variable);
        if (first < 0) first = own;
        parent[static_cast<std::size_t>(std::max(first, own))] = std::min(first, own);
        first = std::min(first, own);
      }
    }
    std::map<int, std::vector<int>> grouped;
    for (std::size_t v = 0; v < values_.size(); ++v)
      if (values_[v] != 0) grouped[root(static_cast<int>(v))].push_back(static_cast<int>(v));
    std::vector<std::vector<int>> result;
    for (auto& [first, region] : grouped) result.push_back(std::move(region));
    return result;
  }

  /// Nothing: no tensor of the region that leaves the range gains.
  std::optional<Repair> repair_of(std::span<const int> values) const {
    const Measured* worst = nullptr;
    int scaled = 0, beyond = 0, below = 0, least = 0, most = 0;
    for (const Measured& each : tensors_) {
      const auto e = static_cast<int>(model_.exponent[each.tensor].at(values));
      if (e == 0) continue;
      ++scaled;
      least = std::min(least, e);
      most = std::max(most, e);
      const ExponentCost cost = range_cost(model_.exponent[each.tensor], each.range);
      if (!leaves_fp16(each.range) || cost.at(e) >= cost.at(0)) continue;
      ++(each.range.largest() * 2 > 65504 ? beyond : below);
      if (worst == nullptr || each.range.largest() > worst->range.largest()) worst = &each;
    }
    if (worst == nullptr) return std::nullopt;
    ScaleRegion region{static_cast<int>(model_.exponent[worst->tensor].at(values)), edits_of(values)};
    const auto inserted = std::ranges::count(region.edits, ScaleEdit::Kind::kInsertion, &ScaleEdit::kind);
    const auto moved = std::ranges::count(region.edits, ScaleEdit::Kind::kInt8Scale, &ScaleEdit::kind);
    std::string why = fmt::format("magnitudes up to {:.3g}", worst->range.largest());
    if (beyond > 1) why += fmt::format(", with {} more tensors at the end of the range of fp16 or beyond", beyond - 1);
    if (below > 0) why += fmt::format(", {} tensor(s) with rows that fp16 rounds to 0", below);
    std::string text = fmt::format(
        "{}: {} tensor(s) hold their values times powers of two (2^{} to 2^{}), by {} constant(s) "
        "and {} added multiplication(s)",
        why, scaled, least, most, std::ssize(region.edits) - inserted - moved, inserted);
    if (moved > 0) text += fmt::format("; {} int8 scale(s) move with them", moved);
    Repair repair{network_.tensor(worst->tensor).name, std::move(region), std::move(text)};
    repair.keeps = kept(values);
    if (!repair.keeps.empty())
      repair.text += fmt::format("; {} layer(s) stay high, since fp16 would not hold a constant where data are 0",
                                 repair.keeps.size());
    return repair;
  }

  std::vector<ScaleEdit> edits_of(std::span<const int> values) const {
    std::vector<ScaleEdit> edits;
    // First: what is inserted behind takes its scale from them.
    if (!scales_.empty())
      for (TensorId id : int8_tensors(spec_)) {
        const auto exponent = static_cast<int>(model_.exponent[id].at(values));
        if (exponent != 0 && scales_.contains(network_.tensor(id).name))
          edits.push_back({ScaleEdit::Kind::kInt8Scale, network_.tensor(id).name, 0, exponent});
      }
    for (const auto& change : model_.changes) {
      const auto exponent = static_cast<int>(change.exponent.at(values));
      if (exponent == 0) continue;
      const bool shared = change.kind == ScaleEdit::Kind::kSharedConstant;
      edits.push_back({change.kind, shared ? network_.tensor(change.tensor).name : network_.layer(change.layer).name,
                       change.input, exponent});
    }
    return edits;
  }

  /// Layers that need more than fp16 where data are 0, by the constants that are left there.
  std::vector<std::string> kept(std::span<const int> values) const {
    std::set<LayerId> layers;
    for (const auto& [change, path] : paths_) {
      if (change->exponent.at(values) == 0) continue;
      const auto sum = range_of_.find(path.front().to);
      const bool overflows = sum != range_of_.end() && sum->second->largest() > 65504;
      for (LayerId id : beyond_fp16(model_, *change, path, values, overflows))
        if (in_fp16(id)) layers.insert(id);
    }
    std::vector<std::string> names;
    for (LayerId id : layers) names.push_back(network_.layer(id).name);
    return names;
  }

  std::vector<std::string> still_beyond() const {
    std::vector<std::string> result;
    for (const Measured& each : tensors_) {
      const auto e = static_cast<int>(model_.exponent[each.tensor].at(values_));
      if (std::ldexp(each.range.largest(), e) <= 65504) continue;
      if (result.size() == kNamedTensors) {
        result.emplace_back("...");
        break;
      }
      const std::string scaled = e == 0 ? "" : fmt::format(", times 2^{}", e);
      const auto pins = pins_of(spec_, model_, each.tensor, kNamedPins);
      result.push_back(fmt::format("'{}' (up to {:.3g}{}) stays beyond fp16{}{}", network_.tensor(each.tensor).name,
                                   each.range.largest(), scaled, pins.empty() ? "" : ", pinned by ",
                                   fmt::join(pins, ", ")));
    }
    return result;
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment& low_;
  const std::map<std::string, float>& scales_;
  ScalingModel model_;
  std::vector<Measured> tensors_;
  std::map<TensorId, const RowRange*> range_of_;
  std::vector<ExponentCost> costs_;
  std::vector<std::pair<const ScalingModel::Change*, std::vector<ConstantStep>>> paths_;
  std::optional<ZeroRows> zero_rows_;  ///< Looks at constants of the whole network: once something asks.
  std::vector<int> values_;
};

}  // namespace

RegionScaling find_region_scaling(const Specialization& spec, const Assignment& low, std::span<const TensorMap> samples,
                                  const CalibrationOptions& options, const WeightCache& weights,
                                  const std::map<std::string, float>& scales, const std::string& backend) {
  return Finder(spec, low, scales).find(samples, options, weights, backend);
}

}  // namespace ulpscope
