// The multiple-choice knapsack: one option of each group, so that their bits fit and their errors are least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ulpscope {

/// What a group may have.
struct KnapsackOption {
  std::int64_t bits = 0;
  double error = 0;  ///< 0 or more; what is not finite counts as a very large one. Errors of groups add up.
};

/// All that is worth having: bits against least errors, from the fewest bits on. Exact as long as there are at most
/// kExact such sums of the first so many groups, whatever their number; beyond, sums that differ by less than a
/// kExact-th of the range of bits count as one, of which the one with the least error stays. Bits are always exact.
class Knapsack {
 public:
  static constexpr std::size_t kExact = 16384;

  /// REQUIRES: an option in every group, at most 256.
  explicit Knapsack(const std::vector<std::vector<KnapsackOption>>& groups);

  /// More bits, less error.
  struct Point {
    std::int64_t bits = 0;
    double error = 0;
  };
  const std::vector<Point>& curve() const noexcept { return curve_; }
  /// The last point with so many bits; nothing where even the first has more.
  std::optional<std::size_t> within(std::int64_t bits) const noexcept;
  /// Per group, the option of a point.
  std::vector<std::size_t> options_of(std::size_t point) const;

 private:
  /// Of the groups up to one: which sum of those before it came to it by which of its options.
  struct Step {
    std::uint32_t before = 0;
    std::uint8_t option = 0;
  };
  std::vector<Point> curve_;
  std::vector<std::vector<Step>> steps_;  ///< Per group, per sum.
};

}  // namespace ulpscope
