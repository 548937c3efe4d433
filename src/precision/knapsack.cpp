#include "precision/knapsack.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ulpscope {
namespace {

/// In the place of errors that are no numbers: sums of them are.
constexpr double kVeryLarge = 1e100;

double counted(double error) { return std::isfinite(error) ? std::min(error, kVeryLarge) : kVeryLarge; }

}  // namespace

Knapsack::Knapsack(const std::vector<std::vector<KnapsackOption>>& groups) : curve_{{}} {
  struct Sum {
    Point point;
    Step step;
  };
  std::vector<Sum> sums;
  for (const std::vector<KnapsackOption>& options : groups) {
    sums.clear();
    for (std::size_t o = 0; o < options.size(); ++o)
      for (std::size_t before = 0; before < curve_.size(); ++before)
        sums.push_back({{curve_[before].bits + options[o].bits, curve_[before].error + counted(options[o].error)},
                        {static_cast<std::uint32_t>(before), static_cast<std::uint8_t>(o)}});
    std::ranges::stable_sort(sums, {}, [](const Sum& sum) { return std::pair(sum.point.bits, sum.point.error); });
    std::vector<Sum> kept;
    for (const Sum& sum : sums)
      if (kept.empty() || sum.point.error < kept.back().point.error) kept.push_back(sum);
    if (kept.size() > kExact) {
      const std::int64_t first = kept.front().point.bits,
                         width = (kept.back().point.bits - first) / static_cast<std::int64_t>(kExact) + 1;
      std::vector<Sum> fewer{kept.front()};  // The fewest bits stay possible.
      for (const Sum& sum : kept) {
        const bool same =
            fewer.size() > 1 && (sum.point.bits - first) / width == (fewer.back().point.bits - first) / width;
        if (same)
          fewer.back() = sum;
        else if (sum.point.bits > first)
          fewer.push_back(sum);
      }
      kept = std::move(fewer);
    }
    curve_.clear();
    std::vector<Step>& steps = steps_.emplace_back();
    for (const Sum& sum : kept) {
      curve_.push_back(sum.point);
      steps.push_back(sum.step);
    }
  }
}

std::optional<std::size_t> Knapsack::within(std::int64_t bits) const noexcept {
  const auto above = std::ranges::upper_bound(curve_, bits, {}, &Point::bits);
  if (above == curve_.begin()) return std::nullopt;
  return static_cast<std::size_t>(above - curve_.begin()) - 1;
}

std::vector<std::size_t> Knapsack::options_of(std::size_t point) const {
  std::vector<std::size_t> result(steps_.size());
  for (std::size_t group = steps_.size(); group-- > 0;) {
    const Step& step = steps_[group][point];
    result[group] = step.option;
    point = step.before;
  }
  return result;
}

}  // namespace ulpscope
