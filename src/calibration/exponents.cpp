#include "calibration/exponents.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace ulpscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Where a variable may be at most, and what one step away from 0 costs: among equals, the smallest.
constexpr int kFarthest = 24;
constexpr double kStep = 0.0005;
/// A move has to be worth this; sums of costs are not exact.
constexpr double kGain = 1e-9;

}  // namespace

Exponent Exponent::of(int variable, std::int64_t factor) {
  Exponent result;
  if (factor != 0) result.terms_.emplace_back(variable, factor);
  return result;
}

std::int64_t Exponent::factor_of(int variable) const noexcept {
  const auto found = std::ranges::find(terms_, variable, &std::pair<int, std::int64_t>::first);
  return found == terms_.end() ? 0 : found->second;
}

std::int64_t Exponent::largest_factor() const noexcept {
  std::int64_t largest = 0;
  for (const auto& [variable, factor] : terms_) largest = std::max(largest, std::abs(factor));
  return largest;
}

std::int64_t Exponent::at(std::span<const int> values) const noexcept {
  std::int64_t sum = 0;
  for (const auto& [variable, factor] : terms_) sum += factor * values[static_cast<std::size_t>(variable)];
  return sum;
}

Exponent Exponent::plus(const Exponent& other, std::int64_t times) const {
  Exponent result;
  auto a = terms_.begin(), b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    const bool from_a = b == other.terms_.end() || (a != terms_.end() && a->first <= b->first);
    const bool from_b = a == terms_.end() || (b != other.terms_.end() && b->first <= a->first);
    const int variable = from_a ? a->first : b->first;
    const std::int64_t factor = (from_a ? a->second : 0) + (from_b ? times * b->second : 0);
    if (factor != 0) result.terms_.emplace_back(variable, factor);
    if (from_a) ++a;
    if (from_b) ++b;
  }
  return result;
}

Exponent Exponent::over(std::int64_t divisor) const {
  Exponent result = *this;
  for (auto& [variable, factor] : result.terms_) factor /= divisor;
  return result;
}

int ExponentSystem::add_variable(int rank) {
  rank_.push_back(rank);
  solved_.emplace_back();
  users_.emplace_back();
  return variables() - 1;
}

Exponent ExponentSystem::reduced(const Exponent& exponent) const {
  Exponent result;
  for (const auto& [variable, factor] : exponent.terms()) {
    const auto& solved = solved_[static_cast<std::size_t>(variable)];
    result = result.plus(solved ? *solved : Exponent::of(variable), factor);
  }
  return result;
}

void ExponentSystem::substitute(int variable, Exponent value) {
  const auto v = static_cast<std::size_t>(variable);
  std::set<int> users = std::move(users_[v]);
  users_[v].clear();
  for (int user : users) {
    Exponent& solved = *solved_[static_cast<std::size_t>(user)];
    const std::int64_t factor = solved.factor_of(variable);
    solved = solved.plus(Exponent::of(variable), -factor).plus(value, factor);
    for (const auto& [free, times] : solved.terms()) users_[static_cast<std::size_t>(free)].insert(user);
  }
  for (const auto& [free, times] : value.terms()) users_[static_cast<std::size_t>(free)].insert(variable);
  solved_[v] = std::move(value);
}

void ExponentSystem::equate(const Exponent& a, const Exponent& b) {
  Exponent rest = reduced(a).plus(reduced(b), -1);
  while (!rest.is_zero()) {
    std::int64_t divisor = 0;
    for (const auto& [variable, factor] : rest.terms()) divisor = std::gcd(divisor, factor);
    rest = rest.over(divisor);
    const auto& [pivot, factor] = *std::ranges::min_element(rest.terms(), {}, [&](const auto& term) {
      return std::tuple(std::abs(term.second), rank_[static_cast<std::size_t>(term.first)], -term.first);
    });
    const int solved = pivot;
    const std::int64_t times = factor;
    if (std::abs(times) == 1) {
      substitute(solved, rest.plus(Exponent::of(solved), -times).times(-times));
      return;
    }
    // times * solved + ... = times * fresh + remainders, which are smaller than `times`.
    Exponent value = Exponent::of(add_variable(rank_[static_cast<std::size_t>(solved)]));
    for (const auto& [variable, other] : rest.terms())
      if (variable != solved) value = value.plus(Exponent::of(variable), -(other / times));
    rest = rest.plus(Exponent::of(solved), -times).plus(value, times);
    substitute(solved, std::move(value));
  }
}

double ExponentCost::at(std::int64_t value) const noexcept {
  return std::abs(value) > kLargest ? kInfinity : cost[static_cast<std::size_t>(kLargest + value)];
}

namespace {

/// Values of variables, and moves that make them cheaper.
class Descent {
 public:
  Descent(int variables, std::span<const ExponentCost> costs)
      : values_(static_cast<std::size_t>(variables), 0), touched_(values_.size()) {
    std::map<Exponent, ExponentCost> distinct;
    for (const ExponentCost& each : costs) {
      if (each.exponent.is_zero()) continue;
      ExponentCost& sum = distinct.try_emplace(each.exponent, ExponentCost{each.exponent, {}}).first->second;
      for (std::size_t i = 0; i < sum.cost.size(); ++i) sum.cost[i] += each.cost[i];
    }
    for (auto& [exponent, cost] : distinct) {
      for (const auto& [variable, factor] : exponent.terms())
        touched_[static_cast<std::size_t>(variable)].push_back({costs_.size(), factor});
      costs_.push_back(std::move(cost));
    }
    now_.assign(costs_.size(), 0);
  }

  std::vector<int> run() {
    while (move_one() || move_two()) {
    }
    return values_;
  }

 private:
  struct Move {
    int variable;
    int by;
  };

  bool move_one() {
    bool moved = false;
    for (int v = 0; v < std::ssize(values_); ++v) {
      Move best{v, 0};
      double gain = -kGain;
      for (int distance = 1; distance <= 2 * kFarthest; ++distance)
        for (int by : {-distance, distance})
          if (const double change = change_by(Move{v, by}, Move{v, 0}); change < gain) {
            best.by = by;
            gain = change - kGain;
          }
      moved |= best.by != 0;
      apply(best);
    }
    return moved;
  }

  /// Two that a cost depends on: where one moves, the other may have to follow.
  bool move_two() {
    bool moved = false;
    for (int v = 0; v < std::ssize(values_); ++v) {
      std::set<int> others;
      for (const Touched& each : touched_[static_cast<std::size_t>(v)])
        for (const auto& [other, factor] : costs_[each.cost].exponent.terms())
          if (other > v) others.insert(other);
      for (int other : others)
        for (int by : {-1, 1, -2, 2})
          for (int along : {-1, 1, -2, 2})
            if (change_by({v, by}, {other, along}) < -kGain) {
              apply({v, by});
              apply({other, along});
              moved = true;
            }
    }
    return moved;
  }

  /// How the cost changes by both moves.
  double change_by(Move a, Move b) const {
    double sum = 0;
    for (const Move& each : {a, b}) {
      const int before = values_[static_cast<std::size_t>(each.variable)], after = before + each.by;
      if (std::abs(after) > kFarthest) return kInfinity;
      sum += kStep * (std::abs(after) - std::abs(before));
    }
    for (const Touched& each : touched_[static_cast<std::size_t>(a.variable)]) {
      const ExponentCost& cost = costs_[each.cost];
      const std::int64_t by = each.factor * a.by + (b.by == 0 ? 0 : cost.exponent.factor_of(b.variable) * b.by);
      sum += cost.at(now_[each.cost] + by) - cost.at(now_[each.cost]);
    }
    if (b.by == 0) return sum;
    for (const Touched& each : touched_[static_cast<std::size_t>(b.variable)])
      if (const ExponentCost& cost = costs_[each.cost]; cost.exponent.factor_of(a.variable) == 0)
        sum += cost.at(now_[each.cost] + each.factor * b.by) - cost.at(now_[each.cost]);
    return sum;
  }

  void apply(Move move) {
    values_[static_cast<std::size_t>(move.variable)] += move.by;
    for (const Touched& each : touched_[static_cast<std::size_t>(move.variable)])
      now_[each.cost] += each.factor * move.by;
  }

  struct Touched {
    std::size_t cost;
    std::int64_t factor;
  };
  std::vector<int> values_;
  std::vector<std::vector<Touched>> touched_;  ///< Per variable: the costs that depend on it.
  std::vector<ExponentCost> costs_;
  std::vector<std::int64_t> now_;  ///< Per cost: its exponent at the values.
};

}  // namespace

std::vector<int> cheapest_values(int variables, std::span<const ExponentCost> costs) {
  return Descent(variables, costs).run();
}

}  // namespace ulpscope
