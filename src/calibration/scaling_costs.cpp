#include "calibration/scaling_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ulpscope {
namespace {

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

bool stays_normal(double smallest, double largest, int exponent) {
  return exponent == 0 || (std::ldexp(smallest, exponent) >= std::numeric_limits<float>::min() &&
                           std::ldexp(largest, exponent) <= std::numeric_limits<float>::max());
}

}  // namespace

ExponentCost range_cost(Exponent exponent, const RowRange& range, double row_weight) {
  return tabulated(std::move(exponent), [&](int e) {
    double cost = cost_in_fp16(range, e, row_weight);
    // What rows gain by larger values is no reason to let data that are larger than the samples overflow.
    const double short_of = std::log2(range.largest()) + e + kHeadroom - kLargestFp16Exponent;
    if (e > 0 && range.largest() > 0 && short_of > 0) cost += kBeyond + kPerBitBeyond * short_of;
    return cost;
  });
}

ExponentCost constant_cost(Exponent exponent, const RowRange& range, bool in_fp16, bool bears_lost_bits,
                           double vanishing) {
  constexpr double kBornRow = 0.02;
  const double least = std::ldexp(1.0, kSmallestFp16Exponent);
  return tabulated(std::move(exponent), [&](int e) {
    if (range.largest() == 0) return 0.0;
    if (!stays_normal(range.smallest(), range.largest(), e)) return kForbidden;
    double cost = e == 0 ? 0 : kChange;
    if (!in_fp16) return cost;
    if (range.largest() >= least && std::ldexp(range.largest(), e) < least) cost += vanishing;
    return cost + cost_in_fp16(range, e, bears_lost_bits ? kBornRow : 1);
  });
}

ExponentCost insertion_cost(Exponent exponent) {
  return tabulated(std::move(exponent), [](int e) {
    return e == 0 ? 0 : e >= kLeastInserted && e <= kMostInserted ? kInsertion : kForbidden;
  });
}

ExponentCost epsilon_cost(Exponent exponent, float epsilon) {
  return tabulated(std::move(exponent), [&](int e) {
    return e == 0 ? 0 : epsilon == 0 || stays_normal(epsilon, epsilon, e) ? kChange : kForbidden;
  });
}

}  // namespace ulpscope
