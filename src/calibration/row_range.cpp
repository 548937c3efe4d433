#include "calibration/row_range.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "calibration/calibrators.h"
#include "core/file.h"
#include "core/vector_clones.h"

namespace ulpscope {
namespace {

/// Of one row; masks count as 0.
struct RowFigures {
  float largest = 0, smallest = kMaskMagnitude;
  double squares = 0;
};

/// The squares in eight sums, whatever the processor, so that all make the same of a row: a product of two floats is
/// exact in double.
ULPSCOPE_VECTOR_CLONES RowFigures figures_of(const float* row, std::int64_t length) {
  constexpr int kLanes = 8;
  std::array<float, kLanes> largest{}, smallest;
  std::array<double, kLanes> squares{};
  smallest.fill(kMaskMagnitude);
  const auto add = [&](int lane, float value) {
    const float magnitude = std::fabs(value);
    const float counted = magnitude < kMaskMagnitude ? magnitude : 0.0F;
    largest[lane] = largest[lane] < counted ? counted : largest[lane];
    const float not_zero = counted > 0 ? counted : kMaskMagnitude;
    smallest[lane] = not_zero < smallest[lane] ? not_zero : smallest[lane];
    squares[lane] += static_cast<double>(counted) * counted;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) add(lane, row[i + lane]);
  for (int lane = 0; i < length; ++i, ++lane) add(lane, row[i]);
  return {*std::ranges::max_element(largest), *std::ranges::min_element(smallest),
          std::accumulate(squares.begin(), squares.end(), 0.0)};
}

}  // namespace

void RowRange::add(const Tensor& given, std::int64_t most) {
  if (given.size() == 0) return;
  const Tensor value = given.in_memory();
  const std::int64_t length = value.shape().empty() ? 1 : value.shape().back(), rows = value.size() / length;
  const std::int64_t stride = std::max<std::int64_t>(1, rows / most);
  const float* v = value.data<float>();
  float largest = 0, smallest = kMaskMagnitude;
  for (std::int64_t row = 0; row < rows; ++row, v += length) {
    const RowFigures figures = figures_of(v, length);
    largest = std::max(largest, figures.largest);
    smallest = std::min(smallest, figures.smallest);
    if (row % stride != 0) continue;
    if (figures.squares == 0) {
      ++zero_rows_;
      continue;
    }
    const double bits = 0.5 * std::log2(figures.squares / static_cast<double>(length));
    const auto bin = static_cast<std::int64_t>(std::lround((bits - kFirst) * kPerBit));
    ++counts_[static_cast<std::size_t>(std::clamp<std::int64_t>(bin, 0, kCount * kPerBit - 1))];
    ++rows_;
  }
  MappedFile::release(value.raw(), value.bytes());
  largest_ = std::max(largest_, static_cast<double>(largest));
  if (smallest < kMaskMagnitude) smallest_ = std::min(smallest_, static_cast<double>(smallest));
}

void RowRange::add(std::span<const std::int32_t> counts) {
  using Counts = ops::RowMagnitudes;
  for (std::size_t bin = 0; bin < counts_.size(); ++bin) {
    counts_[bin] += static_cast<std::uint32_t>(counts[bin]);
    rows_ += counts[bin];
  }
  zero_rows_ += counts[Counts::kZeroRows];
  largest_ = std::max(largest_, static_cast<double>(std::bit_cast<float>(counts[Counts::kLargest])));
  if (counts[Counts::kSmallest] == 0) return;
  if (const auto smallest = std::bit_cast<float>(Counts::kInfinity - counts[Counts::kSmallest]);
      smallest < kMaskMagnitude)
    smallest_ = std::min(smallest_, static_cast<double>(smallest));
}

double RowRange::share_below(int exponent) const noexcept {
  std::int64_t below = 0;
  for (int bin = 0; bin < std::min((exponent - kFirst) * kPerBit, kCount * kPerBit); ++bin)
    below += counts_[static_cast<std::size_t>(bin)];
  return rows_ == 0 ? 0 : static_cast<double>(below) / static_cast<double>(rows_);
}

double RowRange::lost_bits(double exponent, double most) const noexcept {
  if (rows_ == 0) return 0;
  double sum = 0;
  for (std::size_t bin = 0; bin < counts_.size(); ++bin) {
    if (counts_[bin] == 0) continue;
    const double lost = std::clamp(exponent - kFirst - static_cast<double>(bin) / kPerBit, 0.0, most);
    if (lost == 0) break;
    sum += counts_[bin] * lost * lost;
  }
  return sum / static_cast<double>(rows_);
}

}  // namespace ulpscope
