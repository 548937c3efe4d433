#include "calibration/channel_exponents.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/int8.h"

namespace ulpscope {
namespace {

/// Beyond this no channel is scaled: ranges that differ by more are no matter of steps.
constexpr int kLargestExponent = 24;
/// Squared errors before and after, at least: where constants take the factors, and where a layer is added for them.
constexpr double kWorthwhile = 2.0, kWorthALayer = 4.0;
/// Times its largest value, a channel is held without clipping, where it was before: samples show little of a channel.
constexpr double kChannelHeadroom = 2;

/// Weights of a reader by output channel: of as many outputs as an estimate needs, at even distances.
struct ReaderWeights {
  std::int64_t outputs = 0;           ///< Sampled ones.
  std::size_t length = 0;             ///< Weights of an output; the rows below are that long.
  double share = 1;                   ///< Of all outputs, one sampled output stands for 1 / share.
  std::vector<float> value;           ///< [outputs, length]
  std::vector<std::int32_t> channel;  ///< Of the tensor, per weight: one row for all outputs, or one per output.
  const std::int32_t* channels_of(std::int64_t output) const {
    return channel.data() + (channel.size() == length ? 0 : static_cast<std::size_t>(output) * length);
  }
};

ReaderWeights weights_of(const Specialization& spec, const Edit& edit) {
  constexpr std::int64_t kSampled = 32;
  const Layer& layer = spec.network->layer(edit.layer);
  const Tensor value = constant_input(*spec.network, layer, 1)->in_memory();
  const std::int64_t outputs = output_channels(spec, layer);
  const std::int64_t stride = (outputs + kSampled - 1) / kSampled;
  const std::size_t axis = weight_channel_axis(spec, layer);
  std::int64_t inner_out = 1;
  for (std::size_t d = axis + 1; d < edit.shape.size(); ++d) inner_out *= edit.shape[d];
  const std::int64_t inner = inner_of(edit), groups = layer.attributes.integer("group", 1);
  const bool transposed = layer.op->function == Function::kConvTranspose && groups > 1;
  ReaderWeights result;
  result.outputs = (outputs + stride - 1) / stride;
  result.length = static_cast<std::size_t>(value.size() / std::max<std::int64_t>(1, outputs));
  result.share = static_cast<double>(result.outputs) / static_cast<double>(std::max<std::int64_t>(1, outputs));
  result.value.resize(static_cast<std::size_t>(result.outputs) * result.length);
  result.channel.resize(result.value.size());
  std::vector<std::size_t> filled(static_cast<std::size_t>(result.outputs), 0);
  const float* weights = value.data<float>();
  const std::int64_t own = edit.shape[axis];  // Output channels along the axis; in every group of a ConvTranspose.
  for (std::int64_t block = 0; block < value.size() / (inner_out * own); ++block) {
    const std::int64_t before = transposed ? block / (edit.shape[0] / groups) * own : 0;
    for (std::int64_t output = (before + stride - 1) / stride * stride; output < before + own; output += stride) {
      const auto row = static_cast<std::size_t>(output / stride);
      const std::int64_t begin = (block * own + output - before) * inner_out;
      for (std::int64_t i = begin; i < begin + inner_out; ++i) {
        const std::size_t at = row * result.length + filled[row]++;
        result.value[at] = weights[i];
        result.channel[at] = static_cast<std::int32_t>(channel_of(edit, i, inner));
      }
    }
  }
  // Without groups all outputs read the same channels.
  const auto first = result.channel.begin();
  const auto length = static_cast<std::ptrdiff_t>(result.length);
  bool same = true;
  for (std::int64_t o = 1; same && o < result.outputs; ++o)
    same = std::equal(first, first + length, first + o * length);
  if (same && result.outputs > 0) result.channel.resize(result.length);
  return result;
}

/// Chooses the exponents of one tensor.
class Chooser {
 public:
  Chooser(const Specialization& spec, const Fold& fold, const ChannelRange& range, double threshold)
      : range_(range), channels_(range.largest.size()), largest_(0), limit_(channels_), weight_(channels_, 0) {
    for (std::size_t i = 0; i < fold.reader_edits; ++i) readers_.push_back(weights_of(spec, fold.edits[i]));
    for (float each : range_.largest) largest_ = std::max(largest_, static_cast<double>(each));
    const double headroom = largest_ > 0 ? std::max(kChannelHeadroom, threshold / largest_) : 1;
    for (std::size_t k = 0; k < channels_; ++k)
      limit_[k] = std::min(threshold, headroom * static_cast<double>(range_.largest[k]));
    for (const ReaderWeights& reader : readers_)
      for (std::int64_t o = 0; o < reader.outputs; ++o)
        for (std::size_t i = 0; i < reader.length; ++i) {
          float& most = weight_[reader.channels_of(o)[i]];
          most = std::max(most, std::abs(reader.value[static_cast<std::size_t>(o) * reader.length + i]));
        }
  }

  double largest() const { return largest_; }

  /// What the tensor is quantized up to.
  double threshold(std::span<const std::int8_t> exponents) const {
    double most = 0;
    for (std::size_t k = 0; k < channels_; ++k) most = std::max(most, std::ldexp(limit_[k], -exponents[k]));
    return most;
  }

  /// Squared error of the products, summed over their output channels: activations with independent errors of their
  /// steps, and weights as they are rounded, met by independent activations.
  double error(std::span<const std::int8_t> exponents) const {
    const double step = threshold(exponents) / 127;
    std::vector<float> factor(channels_), noise(channels_), square(channels_);
    for (std::size_t k = 0; k < channels_; ++k) {
      factor[k] = std::ldexp(1.0f, exponents[k]);
      square[k] = std::ldexp(range_.mean_square[k], -2 * exponents[k]);
      // What is far below a step becomes 0.
      noise[k] = std::min(static_cast<float>(step * step / 12), square[k]);
    }
    double total = 0;
    Row row;
    for (const ReaderWeights& reader : readers_)
      for (std::int64_t o = 0; o < reader.outputs; ++o) {
        if (o == 0 || reader.channel.size() != reader.length)
          row.gather(reader.channels_of(o), reader.length, factor, noise, square);
        total += row.error(reader.value.data() + static_cast<std::size_t>(o) * reader.length) / reader.share;
      }
    return total;
  }

  std::vector<std::int8_t> choose() const {
    std::vector<std::vector<std::int8_t>> candidates;
    // The large channels are brought down to a threshold.
    const double most = *std::ranges::max_element(limit_);
    for (int i = 1; i <= 14; ++i) {
      const double t = most * std::exp2(-0.5 * i);
      candidates.push_back(from([&](std::size_t k) { return std::max(0.0, std::ceil(std::log2(limit_[k] / t))); }));
    }
    // Ranges of activations and of weights share the burden.
    for (int i = 1; i <= 6; ++i) {
      const double alpha = 0.15 * i;
      candidates.push_back(from([&](std::size_t k) {
        return std::round(alpha * std::log2(limit_[k]) - (1 - alpha) * std::log2(weight_[k]));
      }));
    }
    std::vector<double> errors;
    for (const auto& candidate : candidates) errors.push_back(error(candidate));
    const auto best = std::ranges::min_element(errors) - errors.begin();
    return candidates[best];
  }

 private:
  /// What meets the weights of one output, in their order: loops over it are contiguous.
  struct Row {
    std::vector<float> factor, noise, square;

    void gather(const std::int32_t* channel, std::size_t length, std::span<const float> factors,
                std::span<const float> noises, std::span<const float> squares) {
      factor.resize(length);
      noise.resize(length);
      square.resize(length);
      for (std::size_t i = 0; i < length; ++i) {
        factor[i] = factors[channel[i]];
        noise[i] = noises[channel[i]];
        square[i] = squares[channel[i]];
      }
    }

    double error(const float* weights) const {
      const std::size_t length = factor.size();
      std::int32_t most_bits = 0;  // Bits of magnitudes are ordered as the magnitudes are.
      for (std::size_t i = 0; i < length; ++i)
        most_bits = std::max(most_bits, std::bit_cast<std::int32_t>(weights[i] * factor[i]) & 0x7fffffff);
      const auto most = std::bit_cast<float>(most_bits);
      if (!(most > 0) || !std::isfinite(most)) return 0;
      const float unit = most / 127.0f, inverse = 127.0f / most;
      // Adding and taking away 1.5 * 2^23 rounds what is small beside it to an integer.
      constexpr float kRounder = 12582912.0f;
      constexpr std::size_t kLanes = 16;
      float sums[kLanes] = {};
      std::size_t i = 0;
      for (; i + kLanes <= length; i += kLanes)
        for (std::size_t j = 0; j < kLanes; ++j) {
          const float w = weights[i + j] * factor[i + j];
          const float rounding = ((w * inverse + kRounder) - kRounder) * unit - w;
          sums[j] += noise[i + j] * w * w + square[i + j] * rounding * rounding;
        }
      double total = 0;
      for (; i < length; ++i) {
        const float w = weights[i] * factor[i];
        const float rounding = ((w * inverse + kRounder) - kRounder) * unit - w;
        total += noise[i] * w * w + square[i] * rounding * rounding;
      }
      for (float sum : sums) total += sum;
      return total;
    }
  };

  /// Rounded exponents per channel, the smallest of them 0; a channel that says nothing takes the smallest.
  template <typename Rule>
  std::vector<std::int8_t> from(const Rule& rule) const {
    std::vector<double> wanted(channels_);
    double smallest = std::numeric_limits<double>::infinity(), most = -smallest;
    for (std::size_t k = 0; k < channels_; ++k) {
      const bool counts = range_.largest[k] > 0 && weight_[k] > 0;
      wanted[k] = counts ? rule(k) : std::numeric_limits<double>::quiet_NaN();
      if (counts) smallest = std::min(smallest, wanted[k]);
      if (counts) most = std::max(most, wanted[k]);
    }
    // Of a few channels that hardly matter, the smallest would push all others beyond the limit.
    smallest = std::max(smallest, most - kLargestExponent);
    std::vector<std::int8_t> result(channels_, 0);
    for (std::size_t k = 0; k < channels_; ++k)
      if (!std::isnan(wanted[k])) result[k] = static_cast<std::int8_t>(std::max(0.0, wanted[k] - smallest));
    return result;
  }

  const ChannelRange& range_;
  const std::size_t channels_;
  double largest_;
  std::vector<double> limit_;  ///< What each channel is quantized up to, at least.
  std::vector<float> weight_;  ///< The largest magnitude that meets each channel.
  std::vector<ReaderWeights> readers_;
};

}  // namespace

std::optional<Equalization> find_equalization(const Specialization& spec, const Fold& fold, const ChannelRange& range,
                                              float scale) {
  const Network& network = *spec.network;
  if (range.largest.size() != static_cast<std::size_t>(fold.channels)) return std::nullopt;
  const Chooser chooser(spec, fold, range, 127.0 * scale);
  if (!(chooser.largest() > 0) || !std::isfinite(chooser.largest())) return std::nullopt;
  std::vector<std::int8_t> exponents = chooser.choose();
  int most = *std::ranges::max_element(exponents);
  while (most > 0 && !is_exact_for(network, fold, exponents)) {
    --most;
    for (std::int8_t& e : exponents) e = std::min(e, static_cast<std::int8_t>(most));
  }
  const std::vector<std::int8_t> none(exponents.size(), 0);
  const double worth = fold.copies ? kWorthALayer : kWorthwhile;
  if (most == 0 || !(chooser.error(exponents) * worth <= chooser.error(none))) return std::nullopt;
  Equalization result;
  result.tensor = network.tensor(fold.tensor).name;
  result.copies = fold.copies;
  if (const LayerId producer = network.tensor(fold.tensor).producer; producer != kNone)
    result.producer = network.layer(producer).name;
  for (LayerId reader : fold.readers) result.readers.push_back(network.layer(reader).name);
  result.exponents = std::move(exponents);
  result.scale_before = scale;
  result.scale_after = static_cast<float>(chooser.threshold(result.exponents) / 127.0);
  return result;
}

}  // namespace ulpscope
