#include "precision/trade_off.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "engine/choose.h"

namespace ulpscope {
namespace {

/// Minimum cuts for one curve. Hulls of real networks have 10 to 40 corners.
constexpr int kMostSolves = 64;

}  // namespace

TradeOff::TradeOff(SearchSpace& space, SquaredEffects effects) : space_(space), effects_(std::move(effects)) {
  make_problem();
}

void TradeOff::make_problem() {
  const Specialization& spec = space_.specialization();
  const Network& network = *spec.network;
  const Grouping grouping = fuse_uniformly(spec, space_.options().build, space_.low());
  const std::size_t none = space_.candidates().size();
  IdMap<LayerId, std::size_t> candidate(network.layers.size(), none);
  IdMap<LayerId, std::vector<Precision>> choices(network.layers.size());
  for (LayerId l : network.layers.ids()) choices[l] = {space_.low().precision[l]};
  std::vector<std::vector<std::size_t>> members(grouping.groups.size());
  for (std::size_t i = 0; i < none; ++i) {
    const LayerId id = space_.candidates()[i];
    if (!network.layers.contains(id)) {
      add_inside(i);
      continue;
    }
    candidate[id] = i;
    choices[id].clear();
    for (std::uint8_t level = 0; level <= space_.highest_level(); ++level)
      if (space_.effective_level(i, level) == level && std::isfinite(effects_[i][level]))
        choices[id].push_back(space_.precision(i, level));
    if (grouping.group_of[id] != kNone) members[grouping.group_of[id]].push_back(i);
    // The bias of an int8 product is part of it, and goes where it goes.
    if (const LayerId bias = space_.bias(i); bias != kNone) choices[bias] = choices[id];
  }
  for (auto& each : members)
    if (each.size() > 1) moves_.push_back(std::move(each));
  for (std::size_t i = 0; i < none; ++i) moves_.push_back({i});
  const auto plain = choices;
  add_int8_followers(grouping, choices);
  problem_ = make_cost_problem(spec, grouping, space_.time_model().target(), choices);
  for (CostProblem::Node& node : problem_.nodes) {
    const std::size_t i = candidate[node.layer];
    candidate_of_.push_back(i);
    auto& levels = level_of_.emplace_back(node.choices.size(), std::uint8_t{0});
    if (i == none) continue;
    for (std::size_t c = 0; c < node.choices.size(); ++c) {
      // A follower of an int8 product that has no int8 itself is at its lowest then.
      const Precision p = node.choices.size() > plain[node.layer].size() && c == 0 ? node.choices[1] : node.choices[c];
      while (space_.precision(i, levels[c]) != p) ++levels[c];
    }
  }
}

/// A layer inside of a body is a choice by itself: what raising it alone costs.
void TradeOff::add_inside(std::size_t candidate) {
  Levels levels = space_.highest();
  const double highest = space_.time_us(levels);
  Inside made{candidate, {}};
  for (levels[candidate] = 0; levels[candidate] <= space_.highest_level(); ++levels[candidate])
    made.cost.push_back(space_.time_us(levels) - highest);
  inside_.push_back(std::move(made));
}

double TradeOff::squares(const Levels& levels) const {
  double sum = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) sum += effects_[i][levels[i]];
  return sum;
}

TradeOffPoint TradeOff::point(Levels levels) {
  const double time = space_.time_us(levels), sum = squares(levels);
  return {std::move(levels), time, sum};
}

TradeOff::Cut TradeOff::solve(double price) {
  ++solves_;
  CostProblem priced = problem_;
  for (std::size_t n = 0; n < priced.nodes.size(); ++n)
    if (candidate_of_[n] < effects_.size())
      for (std::size_t c = 0; c < priced.nodes[n].cost.size(); ++c)
        priced.nodes[n].cost[c] += price * effects_[candidate_of_[n]][level_of_[n][c]];
  const std::vector<int> chosen = minimize(priced);
  Levels levels = space_.lowest();
  for (std::size_t n = 0; n < chosen.size(); ++n)
    if (candidate_of_[n] < effects_.size()) levels[candidate_of_[n]] = level_of_[n][chosen[n]];
  double energy = problem_.energy(chosen);
  for (const Inside& each : inside_) {
    std::uint8_t& level = levels[each.candidate];
    const auto priced_cost = [&](std::uint8_t l) { return each.cost[l] + price * effects_[each.candidate][l]; };
    while (!std::isfinite(effects_[each.candidate][level])) ++level;
    for (std::uint8_t l = level; l <= space_.highest_level(); ++l)
      if (std::isfinite(effects_[each.candidate][l]) && priced_cost(l) < priced_cost(level)) level = l;
    energy += each.cost[level];
  }
  return {point(std::move(levels)), energy};
}

TradeOff::Cut TradeOff::highest() {
  std::vector<int> choice;
  for (const CostProblem::Node& node : problem_.nodes) choice.push_back(static_cast<int>(node.choices.size()) - 1);
  return {point(space_.highest()), problem_.energy(choice)};
}

/// The corners of the hull between two of them: the price at which both cost the same finds what costs less.
void TradeOff::explore(const Cut& fast, const Cut& exact, std::vector<TradeOffPoint>& found) {
  const double error = fast.point.squares - exact.point.squares;
  if (solves_ >= kMostSolves || !(error > 0) || !(exact.energy > fast.energy)) return;
  const double price = (exact.energy - fast.energy) / error;
  const Cut middle = solve(price);
  const double gain = fast.energy + price * fast.point.squares - (middle.energy + price * middle.point.squares);
  if (middle.point.levels == fast.point.levels || middle.point.levels == exact.point.levels ||
      gain < 1e-9 * std::abs(fast.energy))
    return;
  found.push_back(middle.point);
  explore(fast, middle, found);
  explore(middle, exact, found);
}

std::vector<TradeOffPoint> TradeOff::curve() {
  solves_ = 0;
  const Cut exact = highest(), fast = solve(0);
  std::vector<TradeOffPoint> found{exact.point, fast.point};
  // Everything as low as it may be: the cut's times are not those of whole groups to the last bit.
  Levels lowest = space_.lowest();
  for (std::size_t i = 0; i < lowest.size(); ++i)
    while (!std::isfinite(effects_[i][lowest[i]])) ++lowest[i];
  found.push_back(point(std::move(lowest)));
  explore(fast, exact, found);
  std::ranges::stable_sort(found, {}, [](const TradeOffPoint& p) { return std::pair(p.time_us, p.squares); });
  std::vector<TradeOffPoint> result;
  for (TradeOffPoint& p : found)
    if (result.empty() || p.squares < result.back().squares) result.push_back(std::move(p));
  return result;
}

std::optional<TradeOffPoint> TradeOff::moved(const TradeOffPoint& from, const std::vector<std::size_t>& members,
                                             std::uint8_t level, double most) {
  Levels levels = from.levels;
  double sum = from.squares;
  for (const std::size_t i : members) {
    const std::uint8_t own = space_.effective_level(i, level);
    sum += effects_[i][own] - effects_[i][levels[i]];
    levels[i] = own;
  }
  if (!(sum <= most) || levels == from.levels) return std::nullopt;
  return point(std::move(levels));
}

std::vector<std::optional<TradeOffPoint>> TradeOff::try_moves(const TradeOffPoint& from, std::span<const Move> moves,
                                                              double most) {
  std::vector<std::optional<TradeOffPoint>> tried(moves.size());
  parallel_each(moves.size(), [&](std::size_t i) { tried[i] = moved(from, *moves[i].members, moves[i].level, most); });
  return tried;
}

/// As many as there are threads for, from the first on.
std::span<const TradeOff::Move> TradeOff::at_once(std::span<const Move> moves) {
  return moves.first(std::min(moves.size(), static_cast<std::size_t>(num_threads())));
}

TradeOffPoint TradeOff::polish(TradeOffPoint best, double most, int evaluations) {
  std::vector<Move> all;
  for (std::uint8_t level = 0; level <= space_.highest_level(); ++level)
    for (const auto& members : moves_) all.push_back({&members, level});
  for (bool improved = true; improved && evaluations > 0;) {
    improved = false;
    for (std::span<const Move> left = all; !left.empty() && evaluations > 0;) {
      // What is behind a move that is taken is tried again from there: as if one came after the other.
      std::size_t seen = 0;
      for (std::optional<TradeOffPoint>& next : try_moves(best, at_once(left), most)) {
        if (evaluations <= 0) break;
        ++seen;
        if (!next) continue;
        --evaluations;
        if (!(next->time_us < best.time_us * (1 - 1e-9)) || !(next->squares <= most)) continue;
        best = std::move(*next);
        improved = true;
        break;
      }
      left = left.subspan(seen);
    }
  }
  return best;
}

TradeOffPoint TradeOff::raise(TradeOffPoint from, double most, int evaluations) {
  struct Raise {
    const std::vector<std::size_t>* members;
    double saved_per_us;
  };
  std::vector<Move> all;
  for (const auto& members : moves_) all.push_back({&members, space_.highest_level()});
  std::vector<Raise> raises;
  for (std::span<const Move> left = all; !left.empty() && evaluations > 0;) {
    const std::span<const Move> some = at_once(left);
    const auto tried = try_moves(from, some, std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < some.size() && evaluations > 0; ++i) {
      if (!tried[i] || !(tried[i]->squares < from.squares)) continue;
      --evaluations;
      raises.push_back(
          {some[i].members, (from.squares - tried[i]->squares) / std::max(tried[i]->time_us - from.time_us, 1e-3)});
    }
    left = left.subspan(some.size());
  }
  std::ranges::stable_sort(raises, std::ranges::greater{}, &Raise::saved_per_us);
  for (const Raise& each : raises) {
    if (from.squares <= most) break;
    if (auto next = moved(from, *each.members, space_.highest_level(), std::numeric_limits<double>::infinity()))
      from = std::move(*next);
  }
  return polish(std::move(from), most, evaluations);
}

TradeOffPoint TradeOff::lower(TradeOffPoint from, double most) {
  const auto added = [&](std::size_t i, std::uint8_t level) {
    return effects_[i][level] - effects_[i][from.levels[i]];
  };
  from = lower_ties(std::move(from), most);
  for (std::uint8_t level = 0; level < space_.highest_level(); ++level) {
    std::vector<std::size_t> raised;
    for (std::size_t i = 0; i < from.levels.size(); ++i)
      if (from.levels[i] > level && space_.effective_level(i, level) == level) raised.push_back(i);
    std::ranges::stable_sort(raised, {}, [&](std::size_t i) { return added(i, level); });
    for (const std::size_t i : raised) {
      if (!(from.squares + added(i, level) <= most)) break;
      from.squares += added(i, level);
      from.levels[i] = level;
    }
  }
  return point(std::move(from.levels));
}

TradeOffPoint TradeOff::lower_ties(TradeOffPoint best, double most) {
  constexpr double kTie = 1e-6;
  for (const auto& members : moves_)
    for (std::uint8_t level = 0; level < space_.highest_level(); ++level) {
      if (std::ranges::none_of(members, [&](std::size_t i) { return best.levels[i] > level; })) continue;
      if (std::ranges::any_of(members,
                              [&](std::size_t i) { return space_.effective_level(i, level) > best.levels[i]; }))
        continue;
      if (auto next = moved(best, members, level, most); next && next->time_us <= best.time_us * (1 + kTie))
        best = std::move(*next);
    }
  return best;
}

TradeOffPoint TradeOff::lower_cheap(TradeOffPoint best, double most,
                                    const std::function<bool(const TradeOffPoint&)>& allows) {
  best = lower_ties(std::move(best), most);
  std::vector<Move> moves;
  for (const auto& members : moves_)
    for (std::uint8_t level = 0; level < space_.highest_level(); ++level)
      if (std::ranges::all_of(members, [&](std::size_t i) { return best.levels[i] > level; }))
        moves.push_back({&members, level});
  const std::vector<std::optional<TradeOffPoint>> tried = try_moves(best, moves, most);
  std::vector<std::pair<double, const Move*>> order;
  for (std::size_t i = 0; i < moves.size(); ++i)
    if (tried[i]) order.emplace_back(tried[i]->time_us, &moves[i]);
  std::ranges::stable_sort(order, {}, &std::pair<double, const Move*>::first);
  for (const auto& [time, move] : order) {
    const auto is_above = [&](std::size_t i) { return best.levels[i] > move->level; };
    if (!std::ranges::all_of(*move->members, is_above)) continue;
    if (auto next = moved(best, *move->members, move->level, most); next && allows(*next)) best = std::move(*next);
  }
  return best;
}

}  // namespace ulpscope
