// The objectives `smallest` and `cheapest`: heads of the order of layers are raised, as few as pass.
#include <algorithm>
#include <cmath>

#include "precision/search_phases.h"
#include "precision/segment_search.h"

namespace ulpscope {
namespace {

Levels head(const SearchState& search, Count count) {
  Levels levels = search.space().lowest();
  for (std::size_t i = 0; i < count; ++i) levels[search.layers.order[i]] = search.space().highest_level();
  return levels;
}

double tail_effect(const SearchState& search, Count count) {
  const auto& [effects, measured, groups, order, scale] = search.layers;
  double squares = 0;
  for (std::size_t i = order.size(); i-- > count;) squares += std::pow(search.layers.weight(order[i]), 2);
  return predicted_use(std::sqrt(squares), search.criterion.sensitivity());
}

/// The fewest layers, from `count` on, that the prediction calls enough, as far as it was right before.
Count predicted_count(const SearchState& search, Count count, double slack = 1.0) {
  const auto is_enough = [&](Count c) {
    return search.layers.scale.corrected(tail_effect(search, c)) <= slack * search.answer.margin;
  };
  while (count < search.layers.order.size() && !is_enough(count)) ++count;
  return count;
}

bool head_passes(SearchState& search, Count count) {
  return search.passes(head(search, count), tail_effect(search, count));
}

/// Tells which trials may come after that of a head, if it passes or not.
bool tries(SearchState& search, Count tried, Count if_passes, Count if_not) {
  search.expect({{head(search, if_passes), TrialKind::kSearch},
                 {head(search, if_not), TrialKind::kSearch},
                 {head(search, tried), TrialKind::kHoldOut}});
  return head_passes(search, tried);
}

/// The fewest layers at the head of the order with which the samples of the search pass; nothing if not even all do.
std::optional<Count> shortest_head(SearchState& search) {
  search.show(Stage::kSearching);
  const Count all = search.layers.order.size();
  std::int64_t fails = -1;
  Count count = 0, step = 1;
  // Known from the trial of the lowest precisions; what fails on some samples fails on more.
  if (search.samples.joined > 0 || !head_passes(search, 0)) {
    fails = 0;
    // Layers whose effects are not finite have to be raised. What the others do together, a trial of these alone tells
    // better than a prediction that asks for many more.
    const auto overflow = [](const LayerEffect& effect) { return !std::isfinite(effect.effect); };
    const auto must_be_raised = [&](std::size_t i) { return !std::isfinite(search.layers.weight(i)); };
    const Count infinite = std::ranges::any_of(search.layers.effects, overflow)
                               ? static_cast<Count>(std::ranges::count_if(search.layers.order, must_be_raised))
                               : 0;
    count = std::max<Count>(1, predicted_count(search, 0));
    if (infinite > 0 && count > 2 * infinite) count = infinite;
  }
  // Upwards in growing steps, to where the corrected prediction points at least, until a trial passes.
  while (!tries(search, count, count - std::min<Count>(count, 1), std::min(all, count + step))) {
    if (count == all) return std::nullopt;
    fails = static_cast<std::int64_t>(count);
    count = std::min(all, std::max(count + step, predicted_count(search, count + 1)));
    step *= 2;
  }
  // Then downwards: one layer less at first, since the prediction is often right, then in growing steps.
  step = 1;
  while (static_cast<std::int64_t>(count) - fails > 1) {
    const auto lowest = static_cast<Count>(fails + 1);
    Count next = count - std::min(step, count - lowest);
    if (step > 1) next = std::max(next, std::min(count - 1, predicted_count(search, lowest, 4.0)));
    if (!tries(search, next, next - std::min(2 * step, next - lowest), next + (count - next) / 2)) {
      fails = static_cast<std::int64_t>(next);
      break;
    }
    count = next;
    step = std::min(2 * step, all);
  }
  // And between the two: where the prediction points, and every third time in the middle.
  for (int turn = 0; static_cast<std::int64_t>(count) - fails > 1; ++turn) {
    const auto lowest = static_cast<Count>(fails + 1);
    const Count middle = lowest + (count - lowest) / 2;
    const Count next = turn % 3 == 2 ? middle : std::clamp(predicted_count(search, lowest), lowest, count - 1);
    if (tries(search, next, lowest + (next - lowest) / 2, next + (count - next) / 2))
      count = next;
    else
      fails = static_cast<std::int64_t>(next);
  }
  return count;
}

/// A set that passes here need not pass elsewhere: more layers are raised, in growing steps, until it does; then as few
/// of these as bisection finds. False if a sample joins the search instead, which begins again.
bool extend_for_held_out(SearchState& search, Count count) {
  const Count all = search.layers.order.size();
  const auto holds = [&](Count heads) {
    return head_passes(search, heads) && passes_held_out(search, head(search, heads));
  };
  if (!passes_held_out(search, head(search, count)) && join_failing_sample(search)) return false;
  Count step = 1, fails = count;
  while (!holds(count)) {
    if (count == all) {
      search.verdict.failure = Verdict::Failure::kFailsValidation;
      return true;
    }
    fails = count;
    count = std::min(all, count + step);
    step *= 2;
  }
  search.verdict.best = head(search, count);
  search.verdict.proof = Verdict::Proof::kValidated;
  while (count > fails && count - fails > 1) {
    const Count middle = fails + (count - fails) / 2;
    if (!holds(middle)) {
      fails = middle;
      continue;
    }
    count = middle;
    search.verdict.best = head(search, count);
  }
  return true;
}

/// Takes another set if it is better and holds.
void adopt(SearchState& search, const Levels& levels) {
  if (search.better(levels, *search.verdict.best) && passes_held_out(search, levels)) search.verdict.best = levels;
}

/// The first (or last) layers of the network, as few as bisection finds.
Levels prefix_bisection(SearchState& search, bool reverse) {
  const auto prefix = [&](Count count) {
    Levels levels = search.space().lowest();
    for (Count i = 0; i < count; ++i) levels[reverse ? levels.size() - 1 - i : i] = search.space().highest_level();
    return levels;
  };
  Count low = 0, high = search.layers.order.size();  // All of them pass.
  while (low < high && search.better(prefix(low), *search.verdict.best)) {
    const Count middle = (low + high) / 2;
    search.expect(
        {{prefix((low + middle) / 2), TrialKind::kFallback}, {prefix((middle + 1 + high) / 2), TrialKind::kFallback}});
    if (search.passes(prefix(middle), TrialKind::kFallback))
      high = middle;
    else
      low = middle + 1;
  }
  return prefix(high);
}

Levels segment_search(SearchState& search) {
  const auto levels_of = [&](const std::vector<char>& raised) {
    Levels levels = search.space().lowest();
    for (Count i = 0; i < levels.size(); ++i)
      if (raised[i] != 0) levels[i] = search.space().highest_level();
    return levels;
  };
  const Count all = search.layers.order.size();
  return levels_of(search_segments(all, segment_budget(all), [&](const std::vector<char>& raised) {
    return search.passes(levels_of(raised), TrialKind::kFallback);
  }));
}

/// Takes single layers out again that nothing fails without, as shrink() does, but tries no more than a few: the least
/// important but one, since no head went without the last, and those before it.
void lower_singles(SearchState& search) {
  constexpr int kTries = 6, kEvaluations = 12;  // The latter: with those of the search before.
  std::vector<std::size_t> raised;
  for (const std::size_t i : search.layers.order)
    if ((*search.verdict.best)[i] != 0) raised.push_back(i);
  for (int tries = 0; tries < kTries && search.answer.evaluations < kEvaluations && raised.size() > 1; ++tries) {
    raised.pop_back();
    Levels levels = *search.verdict.best;
    levels[raised.back()] = 0;
    if (search.passes(levels, TrialKind::kShrink) && passes_held_out(search, levels)) search.verdict.best = levels;
  }
}

}  // namespace

void find_few(SearchState& search) {
  const Count all = search.layers.order.size();
  Count most = 0;  // With fewer samples, too.
  for (bool ended = false; !ended;) {
    if (const std::optional<Count> count = shortest_head(search)) {
      most = std::max(most, *count);
      ended = extend_for_held_out(search, *count);
    } else if (search.space().raise_biases()) {
      search.layers.scale.clear();
    } else {
      search.verdict.failure = Verdict::Failure::kNotReachable;
      ended = true;
    }
  }
  if (!search.verdict.holds()) return;
  // The margin that a search chooses leaves room for other data, and so do these layers.
  if (search.options.margin > 0 && orders_closely(search)) lower_singles(search);
  const bool many = search.rule().counts_work ? search.space().cost_share(*search.verdict.best) > 0.5 : most > all / 2;
  if (!many) return;
  search.show(Stage::kOtherOrders);
  adopt(search, prefix_bisection(search, false));
  adopt(search, prefix_bisection(search, true));
  adopt(search, segment_search(search));
}

void shrink(SearchState& search) {
  search.show(Stage::kShrinking);
  Levels levels = *search.verdict.best;
  const auto raised_in_order = [&] {
    std::vector<std::size_t> result;
    for (std::size_t i = search.layers.order.size(); i-- > 0;)
      if (levels[search.layers.order[i]] != 0) result.push_back(search.layers.order[i]);
    return result;
  };
  std::size_t portion = std::max<std::size_t>(1, raised_in_order().size() / 4);
  for (;;) {
    bool removed = false;
    const std::vector<std::size_t> members = raised_in_order();
    for (std::size_t begin = 0; begin < members.size(); begin += portion) {
      const auto without = [&](std::size_t from, Levels rest) {
        for (std::size_t i = from; i < std::min(from + portion, members.size()); ++i) rest[members[i]] = 0;
        return rest;
      };
      Levels candidate = without(begin, levels);
      const Levels also = without(begin + portion, candidate), instead = without(begin + portion, levels);
      search.expect({{instead, TrialKind::kShrink}, {candidate, TrialKind::kHoldOut}, {also, TrialKind::kShrink}});
      if (!search.passes(candidate, TrialKind::kShrink) || !passes_held_out(search, candidate)) continue;
      search.verdict.best = levels = std::move(candidate);
      removed = true;
    }
    if (portion == 1 && !removed) break;
    portion = std::max<std::size_t>(1, portion / 2);
  }
}

void lower_rungs(SearchState& search) {
  search.show(Stage::kLowering);
  SearchSpace& space = search.space();
  const std::vector<std::size_t>& order = search.layers.order;
  for (std::uint8_t rung = 1; rung < space.highest_level(); ++rung) {
    std::vector<std::size_t> kept;  // The least important first.
    for (std::size_t i = order.size(); i-- > 0;)
      if ((*search.verdict.best)[order[i]] == space.highest_level()) kept.push_back(order[i]);
    const Levels before = *search.verdict.best;
    std::size_t good = 0, bad = kept.size() + 1, next = kept.size();
    while (bad - good > 1) {
      Levels levels = before;
      for (std::size_t i = 0; i < next; ++i) levels[kept[i]] = space.effective_level(kept[i], rung);
      search.expect({{levels, TrialKind::kHoldOut}});
      if (search.passes(levels, TrialKind::kSearch) && passes_held_out(search, levels)) {
        good = next;
        search.verdict.best = std::move(levels);
      } else {
        bad = next;
      }
      next = (good + bad) / 2;
    }
  }
}

}  // namespace ulpscope
