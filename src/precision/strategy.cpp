#include "precision/strategy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace ulpscope {
namespace {

std::vector<int> end_of(int num_layers, Direction direction, int count) {
  std::vector<int> layers(static_cast<std::size_t>(count));
  std::iota(layers.begin(), layers.end(), direction == Direction::kForward ? 0 : num_layers - count);
  return layers;
}

/// ceil(log2(n)) for n >= 1.
int log2_ceiling(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1))); }

/// Tries sets and keeps the smallest right one.
class Attempts {
 public:
  Attempts(int num_layers, Direction direction, const TryLayers& right)
      : num_layers_(num_layers), direction_(direction), right_(right) {}

  bool attempt(int count, int remaining, bool probe = false) {
    return attempt(end_of(num_layers_, direction_, count), remaining, probe);
  }

  bool attempt(std::vector<int> layers, int remaining, bool probe = false) {
    Attempt attempt;
    attempt.count = static_cast<int>(layers.size());
    attempt.layers = std::move(layers);
    attempt.remaining = remaining;
    attempt.probe = probe;
    if (result_.layers) attempt.good = static_cast<int>(result_.layers->size());
    for (const auto& [count, passed] : result_.tried)
      if (!passed && (!attempt.good || count < *attempt.good) && (!attempt.bad || count > *attempt.bad))
        attempt.bad = count;
    const bool passed = right_(attempt);
    result_.tried.emplace_back(attempt.count, passed);
    if (passed && (!result_.layers || attempt.layers.size() < result_.layers->size()))
      result_.layers = std::move(attempt.layers);
    return passed;
  }

  /// Tries larger sets than the answer: all layers, then halfway, ever closer to the answer.
  void probe(int probes) {
    if (!result_.layers) return;
    const int found = static_cast<int>(result_.layers->size());
    int count = num_layers_;
    for (; probes > 0 && count > found; --probes, count = (count + found) / 2)
      if (std::ranges::find(result_.tried, count, &std::pair<int, bool>::first) == result_.tried.end())
        attempt(count, probes, true);
  }

  StrategyResult result() { return std::move(result_); }

 private:
  int num_layers_;
  Direction direction_;
  const TryLayers& right_;
  StrategyResult result_;
};

}  // namespace

bool StrategyResult::monotone() const {
  return std::ranges::all_of(tried, [&](const auto& wrong) {
    return wrong.second ||
           std::ranges::none_of(tried, [&](const auto& other) { return other.second && other.first < wrong.first; });
  });
}

StrategyResult bisect_layers(int num_layers, Direction direction, BisectStart start, const TryLayers& right,
                             int probes) {
  Attempts search(num_layers, direction, right);
  int good = num_layers + 1, bad = 0;  // as if more than all were right, and none wrong
  int next = start == BisectStart::kAll ? num_layers : 0;
  while (true) {
    const bool passed = search.attempt(next, log2_ceiling(good - bad));
    if (passed)
      good = next;
    else
      bad = next;
    if (good - bad <= 1) break;
    const bool up = start == BisectStart::kNone || !passed;
    next = (good + bad + (up ? 1 : 0)) / 2;
  }
  search.probe(probes);
  return search.result();
}

StrategyResult add_layers(int num_layers, Direction direction, const TryLayers& right, int probes) {
  Attempts search(num_layers, direction, right);
  for (int count = 0; count <= num_layers; ++count)
    if (search.attempt(count, num_layers - count)) break;
  search.probe(probes);
  return search.result();
}

StrategyResult add_worst_layers(const std::vector<int>& ranking, int step, const TryLayers& right) {
  Attempts search(static_cast<int>(ranking.size()), Direction::kForward, right);
  const auto rounds =
      static_cast<int>((ranking.size() + static_cast<std::size_t>(step) - 1) / static_cast<std::size_t>(step));
  for (int round = 0; round <= rounds; ++round) {
    const auto count = std::min(ranking.size(), static_cast<std::size_t>(round) * static_cast<std::size_t>(step));
    std::vector<int> layers(ranking.begin(), ranking.begin() + static_cast<std::ptrdiff_t>(count));
    std::ranges::sort(layers);
    if (search.attempt(std::move(layers), rounds - round)) break;
  }
  return search.result();
}

std::vector<int> rank_by_error_growth(const std::vector<double>& errors) {
  std::vector<double> ratios(errors.size(), -1.0);
  if (!errors.empty() && !std::isfinite(errors[0])) ratios[0] = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < errors.size(); ++i) {
    const double before = errors[i - 1], here = errors[i];
    // What follows something that is not finite is not to blame for it.
    if (!std::isfinite(before))
      ratios[i] = 0;
    else if (!std::isfinite(here))
      ratios[i] = std::numeric_limits<double>::infinity();
    else
      ratios[i] = here == 0 ? 0 : here / before;
  }
  std::vector<int> order(errors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return ratios[a] > ratios[b]; });
  return order;
}

}  // namespace ulpscope
