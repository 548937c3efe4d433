// Linear equations among integers, and the cheapest of their solutions: the exponents of region scaling, without
// anything about networks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace ulpscope {

/// A sum of integer multiples of integer variables.
class Exponent {
 public:
  Exponent() = default;  ///< 0
  static Exponent of(int variable, std::int64_t factor = 1);

  const std::vector<std::pair<int, std::int64_t>>& terms() const noexcept {
    return terms_;
  }  ///< By variable; none is 0.
  bool is_zero() const noexcept { return terms_.empty(); }
  std::int64_t factor_of(int variable) const noexcept;
  /// The largest magnitude of a factor.
  std::int64_t largest_factor() const noexcept;
  /// `values`: per variable.
  std::int64_t at(std::span<const int> values) const noexcept;

  Exponent plus(const Exponent& other, std::int64_t times = 1) const;
  Exponent times(std::int64_t factor) const { return Exponent().plus(*this, factor); }
  /// REQUIRES: `divisor` divides all factors.
  Exponent over(std::int64_t divisor) const;

  friend auto operator<=>(const Exponent&, const Exponent&) = default;

 private:
  std::vector<std::pair<int, std::int64_t>> terms_;
};

/// Equations between exponents; they always have the solution 0. Elimination stays within the integers: a variable is
/// solved for where its factor is 1 or -1, and Euclid's algorithm makes such a one where there is none.
class ExponentSystem {
 public:
  /// Variables of a low rank are solved for first, those of one rank from the latest to the first.
  int add_variable(int rank);
  void equate(const Exponent& a, const Exponent& b);
  /// The same exponent in terms of variables that are free.
  Exponent reduced(const Exponent& exponent) const;
  int variables() const noexcept { return static_cast<int>(rank_.size()); }

 private:
  void substitute(int variable, Exponent value);

  std::vector<int> rank_;
  std::vector<std::optional<Exponent>> solved_;  ///< In terms of free variables.
  std::vector<std::set<int>> users_;             ///< Solved variables in whose terms a free one is.
};

/// What it costs that an exponent has a value.
struct ExponentCost {
  static constexpr int kLargest = 64;
  Exponent exponent;
  std::array<double, 2 * kLargest + 1> cost{};  ///< At index kLargest + value; beyond them it is infinite.
  double at(std::int64_t value) const noexcept;
};

/// The variables' values, near 0, whose costs are together the smallest that moves of one variable reach from 0, and of
/// two that a cost has in common. Deterministic. REQUIRES: exponents are reduced, and 0 is not forbidden.
std::vector<int> cheapest_values(int variables, std::span<const ExponentCost> costs);

}  // namespace ulpscope
