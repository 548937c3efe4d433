// What a search chooses among: a level for each candidate layer, and what a choice costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/cost.h"
#include "precision/search.h"
#include "precision/trials.h"

namespace ulpscope {

/// Per candidate: 0 is the lowest precision, k > 0 the k-th rung of the ladder; or its k-th format, where there are
/// SearchTask::formats.
using Levels = std::vector<std::uint8_t>;

/// How many candidates are raised.
std::size_t raised_count(const Levels& levels) noexcept;

class SearchSpace {
 public:
  /// `samples`: those to search with first, `search_samples` of them, then the held-out ones.
  SearchSpace(std::shared_ptr<const Network> network, const SearchTask& options, std::span<const TensorMap> samples,
              const WeightCache& weights = {});

  Trials& trials() noexcept { return *trials_; }
  /// Every candidate at its lowest.
  const Assignment& low() const noexcept { return low_; }
  const std::vector<LayerId>& candidates() const noexcept { return candidates_; }

  Levels lowest() const { return Levels(candidates_.size(), 0); }
  std::uint8_t highest_level() const noexcept;
  /// Those of a candidate. REQUIRES: SearchTask::formats.
  const std::vector<Precision>& formats(std::size_t candidate) const {
    return options_.formats.at(candidates_[candidate]);
  }
  Levels highest() const { return Levels(candidates_.size(), highest_level()); }

  Assignment assignment(const Levels& levels);
  Precision precision(std::size_t candidate, std::uint8_t level) const;
  /// Every candidate that is lower than a rung of the ladder raised to it; lowest() where the ladder has none of this
  /// precision.
  Levels raised_to(Precision rung) const;
  /// The lowest level at which the candidate has the same precision as at this one.
  std::uint8_t effective_level(std::size_t candidate, std::uint8_t level) const;
  /// The raised layers, biases included, by name. All results share one table.
  RaisedLayers names(const Levels& levels) const;

  /// The levels that have these names(); nothing where that is no choice of this space.
  std::optional<Levels> levels_of(const RaisedLayers& raised) const;

  /// What raising a candidate costs: its multiply-adds, and for all layers a little for the elements they write, so
  /// that no layer is free.
  double cost(std::size_t candidate) const { return cost_[candidate]; }
  /// The share of the candidates' multiply-adds that are in raised layers.
  double cost_share(const Levels& levels) const;
  /// From now on the bias of a raised int8 product is raised with it; else it takes the lowest other precision, and
  /// fp16 may not hold it. False if there is none, or if they are raised already.
  bool raise_biases();
  bool has_raised_biases() const noexcept { return biases_raised_; }
  /// The Add that is part of this candidate while it runs in int8, or kNone.
  LayerId bias(std::size_t candidate) const { return biases_[candidate]; }
  /// The bias that is raised with this candidate, and would be lower otherwise, or kNone.
  LayerId raised_bias(const Levels& levels, std::size_t candidate) const;
  /// The candidates, and the biases that are raised with them.
  std::size_t layer_count() const;
  /// Estimated microseconds of one inference on the target.
  double time_us(const Levels& levels) { return (*time_)(assignment(levels)); }
  /// With everything in the highest precision, biases included.
  double highest_time_us();
  const TimeModel& time_model() const noexcept { return *time_; }
  const SearchTask& options() const noexcept { return options_; }
  const Specialization& specialization() const noexcept { return *spec_; }

 private:
  const SearchTask options_;
  std::shared_ptr<const Network> network_;
  std::unique_ptr<Trials> trials_;
  std::shared_ptr<const Specialization> spec_;
  std::optional<TimeModel> time_;
  Assignment low_;
  RaisedLayers::Table layer_names_;  ///< Of the network.
  std::vector<LayerId> candidates_;
  std::vector<LayerId> biases_;        ///< Per candidate: the Add that is part of it while it runs in int8, or kNone.
  std::vector<Precision> bias_alone_;  ///< Per candidate: what its bias has once the product has left int8.
  bool biases_raised_ = false;
  std::vector<double> cost_, multiply_adds_;
  double all_multiply_adds_ = 0;
};

}  // namespace ulpscope
