#include "precision/weight_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/numeric_format.h"

namespace ulpscope {
namespace {

double root(double squares, double of) { return of > 0 ? std::sqrt(squares / of) : 0; }

/// Of the values that have one scale.
struct Share {
  double error = 0, squares = 0, largest = 0, error_of_largest = 0;
  std::int64_t vanished = 0;

  /// The others lose this much.
  double others_lose() const { return root(error - error_of_largest, squares - largest * largest); }
};

/// Channels of one dimension: sums of squares.
std::vector<double> channel_squares(const Tensor& values, int dimension, std::int64_t& inner) {
  const Shape& shape = values.shape();
  inner = 1;
  for (std::size_t d = static_cast<std::size_t>(dimension) + 1; d < shape.size(); ++d) inner *= shape[d];
  std::vector<double> squares(static_cast<std::size_t>(shape[static_cast<std::size_t>(dimension)]), 0.0);
  const auto channels = std::ssize(squares);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const double x = values.data<float>()[i];
    squares[static_cast<std::size_t>(i / inner % channels)] += x * x;
  }
  return squares;
}

/// What elements stand for.
class Restored {
 public:
  Restored(const Quantized& stored, const ScaleLayout& layout)
      : elements_(stored.elements.data<float>()),
        scales_(stored.scales.data<float>()),
        second_(stored.second),
        layout_(layout) {}

  double operator[](std::int64_t i) const {
    return static_cast<double>(elements_[i] * (scales_[layout_.index(i)] * second_));
  }

 private:
  const float *elements_, *scales_;
  const float second_;
  const ScaleLayout& layout_;
};

WeightLoss::Channel outlier(const Tensor& values, const Restored& restored, const ScaleLayout& layout, int dimension) {
  std::int64_t inner = 1;
  std::vector<double> squares = channel_squares(values, dimension, inner);
  const auto channels = std::ssize(squares);
  if (channels < 3) return {};
  const auto largest = std::ranges::max_element(squares);
  const double most = *largest;
  WeightLoss::Channel result{.dimension = dimension, .number = largest - squares.begin()};
  const auto middle = squares.begin() + channels / 2;
  std::ranges::nth_element(squares, middle);
  if (!(*middle > 0)) return {};
  result.ratio = std::sqrt(most / *middle);
  double error = 0, of = 0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const std::int64_t channel = i / inner % channels;
    if (channel == result.number || (layout.blocked && channel / layout.block != result.number / layout.block))
      continue;
    const double x = values.data<float>()[i], d = restored[i] - x;
    error += d * d;
    of += x * x;
  }
  result.others_lose = root(error, of);
  return result;
}

}  // namespace

WeightLoss weight_loss(const Tensor& values, const Quantized& stored, const Encoding& encoding,
                       const ScaleLayout& layout, const std::vector<int>& dimensions) {
  const Restored restored(stored, layout);
  const double top = format_of(encoding.format).largest();
  std::vector<Share> shares(static_cast<std::size_t>(std::max<std::int64_t>(num_elements(layout.scales), 1)));
  const auto scale_of = [&](std::int64_t share) {
    return static_cast<double>(stored.scales.data<float>()[share]) * static_cast<double>(stored.second);
  };
  WeightLoss result;
  double errors = 0, squares = 0, saturation = 0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const std::int64_t at = layout.index(i);
    const double x = values.data<float>()[i], y = restored[i], d = y - x;
    Share& share = shares[static_cast<std::size_t>(at)];
    share.error += d * d;
    share.squares += x * x;
    share.vanished += x != 0 && y == 0 ? 1 : 0;
    if (std::abs(x) > share.largest) {
      share.largest = std::abs(x);
      share.error_of_largest = d * d;
    }
    // The largest elements of floats lie at least a sixteenth apart.
    if (const double limit = top * scale_of(at); std::abs(x) > limit * 17 / 16) {
      ++result.saturated;
      result.most_beyond = std::max(result.most_beyond, std::abs(x) / limit);
      saturation += d * d;
    }
    errors += d * d;
    squares += x * x;
  }
  result.relative = root(errors, squares);
  result.saturation_share = errors > 0 ? saturation / errors : 0;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const Share& share = shares[s];
    if (share.largest == 0) continue;
    ++result.shares;
    if (!layout.blocked) result.gone += share.vanished;
    const double scale = scale_of(static_cast<std::int64_t>(s));
    if (share.largest * 2 < top * scale) {
      ++result.too_small;
      result.vanished += share.vanished;
      result.smallest_scale = result.too_small == 1 ? scale : std::min(result.smallest_scale, scale);
    } else if (layout.blocked && share.others_lose() > 0.5) {
      ++result.swallowed;
      const double others = share.squares - share.largest * share.largest;
      const auto count = static_cast<double>(layout.block - 1);
      result.peak = std::max(result.peak, others > 0 ? share.largest / std::sqrt(others / count) : 0);
    }
  }
  for (const int dimension : dimensions)
    if (const auto found = outlier(values, restored, layout, dimension); found.ratio > result.channel.ratio)
      result.channel = found;
  return result;
}

std::string explain_loss(const WeightLoss& loss, std::int64_t weights, Reason& reason) {
  constexpr double kMany = 0.05, kOutlier = 8, kLost = 0.25;
  const auto many = [&](std::int64_t shares) {
    return static_cast<double>(shares) >= kMany * static_cast<double>(std::max<std::int64_t>(loss.shares, 1));
  };
  if (loss.saturation_share >= 0.5) {
    reason.kind = ReasonKind::kSaturation;
    reason.count = loss.saturated;
    reason.total = weights;
    return fmt::format(
        "; saturation: {} of {} lie beyond the largest element times their scale, by up to {:.3g} times, and that is "
        "{:.0f} % of the squared error",
        loss.saturated, weights, loss.most_beyond, 100 * loss.saturation_share);
  }
  if (loss.too_small > 0 && many(loss.too_small)) {
    reason.kind = ReasonKind::kUnderflow;
    reason.count = loss.vanished;
    reason.total = weights;
    return fmt::format(
        "; scale underflow: {} of {} blocks need less than half of the scale that they get, since none below {:.3g} "
        "can be "
        "stored, and {} of their weights become 0",
        loss.too_small, loss.shares, loss.smallest_scale, loss.vanished);
  }
  if (loss.channel.ratio >= kOutlier && loss.channel.others_lose >= kLost) {
    reason.kind = ReasonKind::kResolution;
    return fmt::format(
        "; outlier channel: channel {} of dimension {} is {:.3g}x the median channel, and what shares scales with it "
        "loses {:.2g} %",
        loss.channel.number, loss.channel.dimension, loss.channel.ratio, 100 * loss.channel.others_lose);
  }
  if (loss.swallowed > 0 && many(loss.swallowed)) {
    reason.kind = ReasonKind::kResolution;
    reason.count = loss.swallowed;
    reason.total = loss.shares;
    return fmt::format(
        "; {} of {} blocks are swallowed by their largest value: up to {:.3g}x the others, which lose more than half",
        loss.swallowed, loss.shares, loss.peak);
  }
  if (static_cast<double>(loss.gone) >= kLost * static_cast<double>(weights)) {
    reason.kind = ReasonKind::kUnderflow;
    reason.count = loss.gone;
    reason.total = weights;
    return fmt::format("; scale underflow: {} of {} become 0 beside the largest that their scale is made for",
                       loss.gone, weights);
  }
  return {};
}

}  // namespace ulpscope
