// What the rows of a tensor hold: one exponent serves a whole tensor, and small rows suffer from large ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ops/reduction/row_magnitudes.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Of values that are finite and no masks (magnitudes from 1e30 on). Rows run along the last axis.
class RowRange {
 public:
  /// Adds every row of a float32 tensor, or `most` of them at even distances; the range is that of all.
  void add(const Tensor& value, std::int64_t most = std::int64_t{1} << 62);

  /// Adds the counts of a tensor (ops/reduction/row_magnitudes.h).
  void add(std::span<const std::int32_t> counts);

  double largest() const noexcept { return largest_; }    ///< Magnitude; 0: nothing but zeros.
  double smallest() const noexcept { return smallest_; }  ///< That is not 0; infinite: there is none.
  bool has_zero_rows() const noexcept { return zero_rows_ > 0; }
  /// The share of the rows that are not 0 whose root mean square is below 2^exponent.
  double share_below(int exponent) const noexcept;
  /// The mean over these rows of the squared number of bits, up to `most`, by which their root mean square lies below
  /// 2^exponent.
  double lost_bits(double exponent, double most) const noexcept;

 private:
  static constexpr int kFirst = ops::RowMagnitudes::kFirstBit, kCount = ops::RowMagnitudes::kBits,
                       kPerBit = ops::RowMagnitudes::kPerBit;
  double largest_ = 0, smallest_ = 1e300;
  std::int64_t zero_rows_ = 0, rows_ = 0;
  std::array<std::uint32_t, kCount * kPerBit> counts_{};  ///< By log2 of the root mean square, from kFirst on.
};

}  // namespace ulpscope
