#include "precision/operand_loss.h"

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
  std::int64_t values = 0, vanished = 0;

  double other_squares() const { return squares - largest * largest; }
  /// The others lose this much.
  double others_lose() const { return root(error - error_of_largest, other_squares()); }
};

/// body(first element, count, scale of the first, step of the scale from one to the next): all elements, in order.
template <typename Body>
void for_scales(const ScaleLayout& layout, std::int64_t size, const Body& body) {
  for (std::int64_t i = 0, count = 0; i < size; i += count) {
    const std::int64_t at = i % layout.axis;
    count = !layout.blocked     ? layout.run(i, size - i)
            : layout.inner == 1 ? std::min(layout.axis, (at / layout.block + 1) * layout.block) - at
                                : layout.inner;
    body(i, count, layout.index(i), layout.blocked && layout.inner > 1 ? 1 : 0);
  }
}

OperandLoss::Channels channel_sums(const Tensor& values, const Tensor& restored, const ScaleLayout& layout,
                                   int dimension) {
  const Shape& shape = values.shape();
  const auto at = static_cast<std::size_t>(dimension);
  std::int64_t inner = 1;
  for (std::size_t d = at + 1; d < shape.size(); ++d) inner *= shape[d];
  const auto channels = static_cast<std::size_t>(shape[at]);
  OperandLoss::Channels sums{dimension, layout.blocked ? layout.block : 0, std::vector<double>(channels),
                             std::vector<double>(channels)};
  const float *x = values.data<float>(), *y = restored.data<float>();
  for (const float* const end = x + values.size(); x != end;)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < inner; ++i, ++x, ++y) {
        const double value = *x, error = *y - value;
        if (!std::isfinite(error)) continue;
        sums.squares[c] += value * value;
        sums.error[c] += error * error;
      }
  return sums;
}

/// The channel with the largest root mean square against the median one, and what the others lose that share a scale
/// with it.
struct Outlier {
  int dimension = 0;
  std::int64_t number = 0;
  double ratio = 0, others_lose = 0;
};

Outlier outlier(const OperandLoss::Channels& sums) {
  const auto channels = std::ssize(sums.squares);
  if (channels < 3) return {};
  std::vector<double> ordered = sums.squares;
  const auto middle = ordered.begin() + channels / 2;
  std::ranges::nth_element(ordered, middle);
  if (!(*middle > 0)) return {};
  const std::int64_t number = std::ranges::max_element(sums.squares) - sums.squares.begin();
  const std::int64_t first = sums.block > 0 ? number / sums.block * sums.block : 0;
  const std::int64_t end = sums.block > 0 ? std::min(channels, first + sums.block) : channels;
  double error = 0, of = 0;
  for (std::int64_t c = first; c < end; ++c) {
    if (c == number) continue;
    error += sums.error[static_cast<std::size_t>(c)];
    of += sums.squares[static_cast<std::size_t>(c)];
  }
  return {sums.dimension, number, std::sqrt(sums.squares[static_cast<std::size_t>(number)] / *middle), root(error, of)};
}

}  // namespace

double OperandLoss::relative() const { return root(error, squares); }

void OperandLoss::add(const OperandLoss& other) {
  error += other.error;
  squares += other.squares;
  values += other.values;
  saturated += other.saturated;
  most_beyond = std::max(most_beyond, other.most_beyond);
  saturation += other.saturation;
  if (other.too_small > 0)
    smallest_scale = too_small > 0 ? std::min(smallest_scale, other.smallest_scale) : other.smallest_scale;
  too_small += other.too_small;
  shares += other.shares;
  vanished += other.vanished;
  gone += other.gone;
  swallowed += other.swallowed;
  peak = std::max(peak, other.peak);
  // As many in every sample; of a sum over positions, as many as there are.
  const auto add_sums = [](std::vector<double>& to, const std::vector<double>& from) {
    to.resize(std::max(to.size(), from.size()));
    for (std::size_t c = 0; c < from.size(); ++c) to[c] += from[c];
  };
  channels.resize(std::max(channels.size(), other.channels.size()));
  for (std::size_t d = 0; d < other.channels.size(); ++d) {
    channels[d].dimension = other.channels[d].dimension;
    channels[d].block = other.channels[d].block;
    add_sums(channels[d].error, other.channels[d].error);
    add_sums(channels[d].squares, other.channels[d].squares);
  }
}

OperandLoss operand_loss(const Tensor& values, const Quantized& stored, const Encoding& encoding,
                         const ScaleLayout& layout, const std::vector<int>& dimensions) {
  const double top = format_of(encoding.format).largest();
  Tensor restored(DataType::kFloat32, values.shape());
  std::vector<Share> shares(static_cast<std::size_t>(std::max<std::int64_t>(num_elements(layout.scales), 1)));
  const auto scale_of = [&](std::int64_t share) { return stored.scales.data<float>()[share] * stored.second; };
  OperandLoss result{.values = values.size()};
  for_scales(layout, values.size(), [&](std::int64_t begin, std::int64_t count, std::int64_t at, std::int64_t step) {
    for (std::int64_t i = begin; i < begin + count; ++i, at += step) {
      const float scale = scale_of(at);
      restored.data<float>()[i] = stored.elements.data<float>()[i] * scale;
      const double x = values.data<float>()[i], y = restored.data<float>()[i], size = std::abs(x), d = y - x;
      if (!std::isfinite(d)) continue;
      Share& share = shares[static_cast<std::size_t>(at)];
      share.error += d * d;
      share.squares += x * x;
      ++share.values;
      share.vanished += x != 0 && y == 0 ? 1 : 0;
      if (size > share.largest) {
        share.largest = size;
        share.error_of_largest = d * d;
      }
      // The largest elements of floats lie at least a sixteenth apart.
      if (const double limit = top * static_cast<double>(scale); limit > 0 && size > limit * 17 / 16) {
        ++result.saturated;
        result.most_beyond = std::max(result.most_beyond, size / limit);
        result.saturation += d * d;
      }
    }
  });
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const Share& share = shares[s];
    result.error += share.error;
    result.squares += share.squares;
    if (share.largest == 0) continue;
    ++result.shares;
    if (!layout.blocked) result.gone += share.vanished;
    const double scale = scale_of(static_cast<std::int64_t>(s));
    if (scale == 0 || share.largest * 2 < top * scale) {
      const NumericFormat& scales = format_of(encoding.scale);
      const double least =
          scale > 0 ? scale
                    : std::ldexp(static_cast<double>(stored.second), scales.min_exponent() - scales.mantissa_bits);
      result.smallest_scale = result.too_small == 0 ? least : std::min(result.smallest_scale, least);
      ++result.too_small;
      result.vanished += share.vanished;
    } else if (layout.blocked && share.others_lose() > 0.5) {
      ++result.swallowed;
      const double others = share.other_squares();
      const auto count = static_cast<double>(share.values - 1);
      result.peak = std::max(result.peak, others > 0 ? share.largest / std::sqrt(others / count) : 0);
    }
  }
  for (const int dimension : dimensions) result.channels.push_back(channel_sums(values, restored, layout, dimension));
  return result;
}

std::string explain_loss(const OperandLoss& loss, Reason& reason) {
  constexpr double kMany = 0.05, kOutlier = 8, kLost = 0.25;
  const auto many = [&](std::int64_t shares) {
    return shares > 0 && static_cast<double>(shares) >= kMany * static_cast<double>(loss.shares);
  };
  const auto set = [&](ReasonKind kind, std::int64_t count, std::int64_t total) {
    reason.kind = kind;
    reason.count = count;
    reason.total = total;
  };
  if (loss.saturation > 0 && loss.saturation >= 0.5 * loss.error) {
    set(ReasonKind::kSaturation, loss.saturated, loss.values);
    return fmt::format(
        "saturation: {} of {} lie beyond the largest element times their scale, by up to {:.3g} times, and that is "
        "{:.0f} % of the squared error",
        loss.saturated, loss.values, loss.most_beyond, 100 * loss.saturation / loss.error);
  }
  if (many(loss.too_small)) {
    set(ReasonKind::kUnderflow, loss.vanished, loss.values);
    return fmt::format(
        "scale underflow: {} of {} blocks need less than half of the smallest scale that can be stored, {:.3g}, and {} "
        "of their values become 0",
        loss.too_small, loss.shares, loss.smallest_scale, loss.vanished);
  }
  Outlier found;
  for (const OperandLoss::Channels& sums : loss.channels)
    if (const Outlier other = outlier(sums); other.ratio > found.ratio) found = other;
  if (found.ratio >= kOutlier && found.others_lose >= kLost) {
    reason.kind = ReasonKind::kResolution;
    return fmt::format(
        "outlier channel: channel {} of dimension {} is {:.3g}x the median channel, and what shares scales with it "
        "loses {:.2g} %",
        found.number, found.dimension, found.ratio, 100 * found.others_lose);
  }
  if (many(loss.swallowed)) {
    set(ReasonKind::kResolution, loss.swallowed, loss.shares);
    return fmt::format(
        "{} of {} blocks are swallowed by their largest value: up to {:.3g}x the others, which lose more than half",
        loss.swallowed, loss.shares, loss.peak);
  }
  if (static_cast<double>(loss.gone) >= kLost * static_cast<double>(loss.values) && loss.gone > 0) {
    set(ReasonKind::kUnderflow, loss.gone, loss.values);
    return fmt::format("scale underflow: {} of {} become 0 beside the largest that their scale is made for", loss.gone,
                       loss.values);
  }
  return {};
}

}  // namespace ulpscope
