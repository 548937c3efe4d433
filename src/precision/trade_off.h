// Error against time: the assignments that are fastest at each price of an error, from the prediction.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/cost.h"
#include "precision/search_space.h"

namespace ulpscope {

/// Per candidate and level: the square of its predicted effect. Infinite: it cannot be at that level.
using SquaredEffects = std::vector<std::vector<double>>;

struct TradeOffPoint {
  Levels levels;
  double time_us = 0;  ///< SearchSpace::time_us.
  double squares = 0;  ///< The sum of the squared effects.
};

/// Minimizes time + price * sum of squared effects: one minimum cut for two types, alpha expansion for more
/// (engine/cost.h). Deterministic.
class TradeOff {
 public:
  /// `space` outlives it.
  TradeOff(SearchSpace& space, SquaredEffects effects);

  /// The lower hull of time and error over all prices, from the fastest assignment to one without an error: everything
  /// in the highest precision, or a faster one. Each is slower than the one before and has a smaller error.
  std::vector<TradeOffPoint> curve();
  /// From there by single moves, each to a faster assignment whose squares are at most `most`: a layer, or a group that
  /// would be one kernel, takes another level. Looks at `evaluations` assignments at most.
  TradeOffPoint polish(TradeOffPoint point, double most, int evaluations);
  /// From a point whose squares are more than `most`: kernels and layers are raised, those first that save most squares
  /// for their time, until it is below; then polished.
  TradeOffPoint raise(TradeOffPoint point, double most, int evaluations);
  TradeOffPoint point(Levels levels);
  /// From there with as few raised layers as squares of at most `most` allow: first those go down that take no time so,
  /// then those with the smallest effects, whatever time that takes.
  TradeOffPoint lower(TradeOffPoint point, double most);
  /// The same as far as no layer takes time.
  TradeOffPoint lower_ties(TradeOffPoint point, double most);
  /// Then by moves that take time, the least first, each where `allows` says so of what it leads to.
  TradeOffPoint lower_cheap(TradeOffPoint point, double most, const std::function<bool(const TradeOffPoint&)>& allows);

 private:
  struct Cut {
    TradeOffPoint point;
    double energy = 0;  ///< What the cost problem says of its time.
  };
  void make_problem();
  void add_inside(std::size_t candidate);
  Cut solve(double price);
  Cut highest();
  void explore(const Cut& fast, const Cut& exact, std::vector<TradeOffPoint>& found);
  double squares(const Levels& levels) const;
  /// These candidates take a level.
  struct Move {
    const std::vector<std::size_t>* members;
    std::uint8_t level;
  };
  /// Each by itself from there, side by side, as `moved` gives it.
  std::vector<std::optional<TradeOffPoint>> try_moves(const TradeOffPoint& from, std::span<const Move> moves,
                                                      double most);
  static std::span<const Move> at_once(std::span<const Move> moves);
  /// `point` with these candidates at a level; nothing where that changes nothing.
  std::optional<TradeOffPoint> moved(const TradeOffPoint& point, const std::vector<std::size_t>& members,
                                     std::uint8_t level, double most);

  SearchSpace& space_;
  SquaredEffects effects_;
  std::vector<std::vector<std::size_t>> moves_;  ///< Candidates that would be one kernel, then each by itself.
  CostProblem problem_;
  std::vector<std::size_t> candidate_of_;            ///< Per node; none: the number of candidates.
  std::vector<std::vector<std::uint8_t>> level_of_;  ///< Per node and choice.
  /// A candidate inside of a body, with what each of its levels costs.
  struct Inside {
    std::size_t candidate;
    std::vector<double> cost;
  };
  std::vector<Inside> inside_;
  int solves_ = 0;
};

}  // namespace ulpscope
