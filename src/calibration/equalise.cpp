#include "calibration/equalise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/parallel.h"
#include "engine/int8.h"
#include "graph/adjoint.h"
#include "graph/name_match.h"
#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Beyond this no channel is scaled: ranges that differ by more are no matter of steps.
constexpr int kLargestExponent = 24;
/// Squared errors before and after, at least: where constants take the factors, and where a layer is added for them.
constexpr double kWorthwhile = 2.0, kWorthALayer = 4.0;

/// A constant whose elements are multiplied by 2^(sign * exponent of their channel).
struct Edit {
  LayerId layer = kNone;
  std::size_t input = 0;
  int sign = 1;
  Shape shape;           ///< The constant as it has to be: one element may become one per channel.
  std::size_t axis = 0;  ///< Of `shape`, counts the channels (of a group).
  /// Groups: the channel is index[axis] + shape[axis] * (index[0] / per_group). 0: one group.
  std::int64_t per_group = 0;
};

/// How the channels of a tensor can be rescaled.
struct Fold {
  TensorId tensor = kNone;
  bool copies = false;  ///< A layer is added that rescales the tensor for its readers; the tensor itself stays.
  std::int64_t channels = 0;
  std::size_t trailing = 0;  ///< Axes behind that of the channels.
  std::vector<Edit> edits;   ///< Those of the readers first,
  std::size_t reader_edits = 0;
  std::vector<LayerId> readers;
  std::vector<LayerId> passed;  ///< Layers with or without edits from the producer upwards.
};

const Tensor* float_constant(const Network& network, TensorId id) {
  if (id == kNone) return nullptr;
  const TensorInfo& info = network.tensor(id);
  const bool plain = info.producer == kNone || network.layer(info.producer).op->kind == OpKind::kConstant;
  if (!plain || !info.value || info.value.type() != DataType::kFloat32 || info.value.size() == 0) return nullptr;
  return &info.value;
}

const Tensor* constant_input(const Network& network, const Layer& layer, std::size_t index) {
  return index < layer.inputs.size() ? float_constant(network, layer.inputs[index]) : nullptr;
}

bool has_input(const Layer& layer, std::size_t index) {
  return index < layer.inputs.size() && layer.inputs[index] != kNone;
}

class Folder {
 public:
  explicit Folder(const Network& network) : network_(network), consumers_(network.consumers()) {}

  std::optional<Fold> fold(TensorId tensor, bool copies) const {
    Fold result;
    result.tensor = tensor;
    result.copies = copies;
    if (network_.tensor(tensor).value || (!copies && network_.is_output(tensor))) return {};
    for (LayerId id : consumers_[static_cast<std::size_t>(tensor)]) {
      if (add_reader(id, result))
        result.readers.push_back(id);
      else if (!copies)
        return {};
    }
    result.reader_edits = result.edits.size();
    if (result.channels < 2 || (!copies && !take(tensor, result))) return {};
    return result;
  }

 private:
  bool add_reader(LayerId id, Fold& fold) const {
    const Layer& layer = network_.layer(id);
    const std::string_view op = layer.op->name;
    const Tensor* weights = constant_input(network_, layer, 1);
    if (std::ranges::count(layer.inputs, fold.tensor) != 1 || layer.inputs[0] != fold.tensor || weights == nullptr)
      return false;
    const Shape& shape = weights->shape();
    Edit edit{id, 1, 1, shape, 0, 0};
    std::int64_t channels = 0;
    std::size_t trailing = 0;
    if (op == "MatMul" && shape.size() >= 2) {
      edit.axis = shape.size() - 2;
      channels = shape[edit.axis];
    } else if (op == "Gemm" && shape.size() == 2 && layer.attributes.integer("transA", 0) == 0) {
      edit.axis = layer.attributes.integer("transB", 0) != 0 ? 1 : 0;
      channels = shape[edit.axis];
    } else if ((op == "Conv" || op == "ConvTranspose") && shape.size() >= 3) {
      const std::int64_t groups = layer.attributes.integer("group", 1);
      trailing = shape.size() - 2;
      if (groups < 1 || shape[0] % groups != 0) return false;
      if (op == "Conv") {
        edit.axis = 1;
        edit.per_group = groups == 1 ? 0 : shape[0] / groups;
        channels = shape[1] * groups;
      } else {
        channels = shape[0];
      }
    } else {
      return false;
    }
    if (fold.channels != 0 && (channels != fold.channels || trailing != fold.trailing)) return false;
    fold.channels = channels;
    fold.trailing = trailing;
    fold.edits.push_back(std::move(edit));
    return true;
  }

  /// A constant that meets every channel once, or all of them: of one element, or of one along the channels.
  bool take_pointwise(LayerId id, std::size_t input, int sign, std::size_t trailing, Fold& fold) const {
    const Tensor* value = constant_input(network_, network_.layer(id), input);
    if (value == nullptr) return false;
    Shape shape = value->shape();
    if (shape.size() < trailing + 1) shape.insert(shape.begin(), trailing + 1 - shape.size(), 1);
    const std::size_t axis = shape.size() - 1 - trailing;
    if (shape[axis] != 1 && shape[axis] != fold.channels) return false;
    shape[axis] = fold.channels;
    fold.edits.push_back({id, input, sign, std::move(shape), axis, 0});
    return true;
  }

  /// A parameter with one element per channel.
  bool take_vector(LayerId id, std::size_t input, Fold& fold) const {
    const Tensor* value = constant_input(network_, network_.layer(id), input);
    return value != nullptr && value->shape() == Shape{fold.channels} && take_pointwise(id, input, -1, 0, fold);
  }

  bool take_weights(LayerId id, Fold& fold) const {
    const Layer& layer = network_.layer(id);
    const std::string_view op = layer.op->name;
    const Tensor* weights = constant_input(network_, layer, 1);
    if (weights == nullptr) return false;
    const Shape& shape = weights->shape();
    Edit edit{id, 1, -1, shape, 0, 0};
    std::int64_t channels = 0;
    if (op == "Conv" || op == "ConvTranspose") {
      if (shape.size() != fold.trailing + 2) return false;
      const std::int64_t groups = layer.attributes.integer("group", 1);
      channels = shape[0];
      if (op == "ConvTranspose") {
        if (groups < 1 || shape[0] % groups != 0) return false;
        edit.axis = 1;
        edit.per_group = groups == 1 ? 0 : shape[0] / groups;
        channels = shape[1] * groups;
      }
      if (channels != fold.channels || (has_input(layer, 2) && !take_vector(id, 2, fold))) return false;
    } else {
      if (fold.trailing != 0 || shape.size() < 2) return false;
      const bool gemm = op == "Gemm";
      edit.axis = shape.size() - (gemm && layer.attributes.integer("transB", 0) != 0 ? 2 : 1);
      channels = shape[edit.axis];
      if (channels != fold.channels || (gemm && has_input(layer, 2) && !take_pointwise(id, 2, -1, 0, fold)))
        return false;
    }
    fold.edits.push_back(std::move(edit));
    return true;
  }

  /// Goes on with an input that only this layer reads.
  bool pass(TensorId input, Fold& fold) const {
    if (input == kNone || network_.tensor(input).value || network_.is_output(input)) return false;
    return consumers_[static_cast<std::size_t>(input)].size() == 1 && take(input, fold);
  }

  bool take(TensorId tensor, Fold& fold) const {
    const LayerId id = network_.tensor(tensor).producer;
    if (id == kNone) return false;
    const Layer& layer = network_.layer(id);
    const std::string_view op = layer.op->name;
    if (layer.inputs.empty() || !layer.op->domain.empty() ||
        std::ranges::count_if(layer.outputs, [](TensorId t) { return t != kNone; }) != 1)
      return false;
    fold.passed.push_back(id);
    const auto constant = [&](std::size_t i) { return constant_input(network_, layer, i) != nullptr; };
    if (op == "Mul") {
      return (constant(1) && take_pointwise(id, 1, -1, fold.trailing, fold)) ||
             (constant(0) && take_pointwise(id, 0, -1, fold.trailing, fold));
    }
    if (op == "Div") return constant(1) && take_pointwise(id, 1, 1, fold.trailing, fold);
    if (op == "Add" || op == "Sub") {
      const std::size_t side = constant(1) ? 1 : 0;
      // A summand of one element has no int8 form, the vector that it would become has one.
      return constant(side) && constant_input(network_, layer, side)->size() > 1 &&
             take_pointwise(id, side, -1, fold.trailing, fold) && pass(layer.inputs[1 - side], fold);
    }
    if (op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose") return take_weights(id, fold);
    // Axis 1 holds the channels where the reader is a convolution.
    if (op == "BatchNormalization" || op == "InstanceNormalization")
      return fold.trailing > 0 && layer.attributes.integer("training_mode", 0) == 0 && take_vector(id, 1, fold) &&
             take_vector(id, 2, fold);
    if (op == "LayerNormalization")
      return fold.trailing == 0 && take_vector(id, 1, fold) && (!has_input(layer, 2) || take_vector(id, 2, fold));
    if (op == "Relu" || op == "LeakyRelu" || op == "PRelu" || op == "Identity") return pass(layer.inputs[0], fold);
    if (op == "MaxPool") return fold.trailing > 0 && pass(layer.inputs[0], fold);
    return false;
  }

  const Network& network_;
  const std::vector<std::vector<LayerId>> consumers_;
};

std::int64_t inner_of(const Edit& edit) {
  std::int64_t inner = 1;
  for (std::size_t d = edit.axis + 1; d < edit.shape.size(); ++d) inner *= edit.shape[d];
  return inner;
}

/// Which channel the element of `edit.shape` belongs to.
std::int64_t channel_of(const Edit& edit, std::int64_t element, std::int64_t inner) {
  const std::int64_t within = element / inner % edit.shape[edit.axis];
  if (edit.per_group == 0) return within;
  return within + element / (inner * edit.shape[edit.axis]) / edit.per_group * edit.shape[edit.axis];
}

/// The constant with its elements rescaled; nothing where that would round one.
std::optional<Tensor> rescaled(const Tensor& value, const Edit& edit, std::span<const std::int8_t> exponents) {
  Tensor result(DataType::kFloat32, edit.shape);
  const float* in = value.data<float>();
  float* out = result.data<float>();
  const std::int64_t inner = inner_of(edit), length = edit.shape[edit.axis];
  // Only the axis of the channels may have grown, from 1.
  const bool grown = value.size() != result.size();
  std::vector<float> factors(exponents.size());
  for (std::size_t k = 0; k < factors.size(); ++k) factors[k] = std::ldexp(1.0f, edit.sign * exponents[k]);
  bool rounds = false;
  for (std::int64_t block = 0; block < result.size() / inner; ++block) {
    const float factor = factors[static_cast<std::size_t>(channel_of(edit, block * inner, inner))];
    const float* from = in + (grown ? block / length : block) * inner;
    float* to = out + block * inner;
    // A product with a power of two is exact while it stays a normal number; so do zeros, infinities and NaN.
    std::int32_t lost = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      to[i] = from[i] * factor;
      const std::int32_t before = std::bit_cast<std::int32_t>(from[i]) & 0x7fffffff;
      const std::int32_t after = std::bit_cast<std::int32_t>(to[i]) & 0x7fffffff;
      const bool was_number = (before != 0) & (before < 0x7f800000),
                 is_normal = (after >= 0x00800000) & (after < 0x7f800000);
      lost |= was_number & !is_normal;
    }
    rounds |= lost != 0 && factor != 1.0f;
  }
  if (rounds) return std::nullopt;
  return result;
}

bool is_exact_for(const Network& network, const Fold& fold, std::span<const std::int8_t> exponents) {
  return std::ranges::all_of(fold.edits, [&](const Edit& edit) {
    return rescaled(*constant_input(network, network.layer(edit.layer), edit.input), edit, exponents).has_value();
  });
}

/// The layer quantises its constant with one scale for all channels.
bool quantises_constant(const Specialization& spec, const Assignment& low, const Fold& fold, LayerId id) {
  const Layer& layer = spec.network->layer(id);
  if (low.precision[static_cast<std::size_t>(id)] != Precision::kINT8 || layer.op->kind == OpKind::kContraction)
    return false;
  const bool edited = std::ranges::any_of(fold.edits, [&](const Edit& edit) { return edit.layer == id; });
  return edited && product_of_bias(spec, id) == kNone;
}

bool suits(const Specialization& spec, const Assignment& low, const Fold& fold) {
  const Shape& shape = *spec.shape(fold.tensor);
  if (shape.size() < fold.trailing + 1 || shape[shape.size() - 1 - fold.trailing] != fold.channels) return false;
  for (LayerId reader : fold.readers) {
    const auto quantised = quantised_inputs(spec, reader);
    if (low.precision[static_cast<std::size_t>(reader)] != Precision::kINT8 || quantised.size() != 1 ||
        quantised[0] != fold.tensor || is_integer_product(spec, reader))
      return false;
  }
  return std::ranges::none_of(fold.passed, [&](LayerId layer) {
    return spec.folded[static_cast<std::size_t>(layer)] || quantises_constant(spec, low, fold, layer);
  });
}

std::optional<Fold> usable_fold(const Specialization& spec, const Assignment& low, const Folder& folder, TensorId id) {
  if (spec.is_constant(id) || !spec.shape(id) || spec.type(id) != DataType::kFloat32) return {};
  for (bool copies : {false, true})
    if (auto fold = folder.fold(id, copies); fold && suits(spec, low, *fold)) return fold;
  return {};
}

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
  const Tensor& value = *constant_input(*spec.network, layer, 1);
  const std::int64_t outputs = output_channels(spec, layer);
  const std::int64_t stride = (outputs + kSampled - 1) / kSampled;
  const std::size_t axis = weight_channel_axis(spec, layer);
  std::int64_t inner_out = 1;
  for (std::size_t d = axis + 1; d < edit.shape.size(); ++d) inner_out *= edit.shape[d];
  const std::int64_t inner = inner_of(edit), groups = layer.attributes.integer("group", 1);
  const bool transposed = layer.op->name == "ConvTranspose" && groups > 1;
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
      : range_(range), channels_(range.largest.size()), headroom_(1), largest_(0), weight_(channels_, 0) {
    for (std::size_t i = 0; i < fold.reader_edits; ++i) readers_.push_back(weights_of(spec, fold.edits[i]));
    for (float each : range_.largest) largest_ = std::max(largest_, static_cast<double>(each));
    if (largest_ > 0) headroom_ = std::max(1.0, threshold / largest_);
    threshold_ = threshold;
    for (const ReaderWeights& reader : readers_)
      for (std::int64_t o = 0; o < reader.outputs; ++o)
        for (std::size_t i = 0; i < reader.length; ++i) {
          float& most = weight_[static_cast<std::size_t>(reader.channels_of(o)[i])];
          most = std::max(most, std::abs(reader.value[static_cast<std::size_t>(o) * reader.length + i]));
        }
  }

  double largest() const { return largest_; }

  /// What the tensor is quantised up to.
  double threshold(std::span<const std::int8_t> exponents) const {
    double most = 0;
    for (std::size_t k = 0; k < channels_; ++k)
      most = std::max(most, std::ldexp(static_cast<double>(range_.largest[k]), -exponents[k]));
    return std::min(threshold_, most * headroom_);
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
    for (int i = 1; i <= 14; ++i) {
      const double t = largest_ * std::exp2(-0.5 * i);
      candidates.push_back(
          from([&](std::size_t k) { return std::max(0.0, std::ceil(std::log2(range_.largest[k] / t))); }));
    }
    // Ranges of activations and of weights share the burden.
    for (int i = 1; i <= 6; ++i) {
      const double alpha = 0.15 * i;
      candidates.push_back(from([&](std::size_t k) {
        return std::round(alpha * std::log2(range_.largest[k]) - (1 - alpha) * std::log2(weight_[k]));
      }));
    }
    std::vector<double> errors;
    for (const auto& candidate : candidates) errors.push_back(error(candidate));
    const auto best = std::ranges::min_element(errors) - errors.begin();
    return candidates[static_cast<std::size_t>(best)];
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
        factor[i] = factors[static_cast<std::size_t>(channel[i])];
        noise[i] = noises[static_cast<std::size_t>(channel[i])];
        square[i] = squares[static_cast<std::size_t>(channel[i])];
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
  double headroom_, largest_, threshold_ = 0;
  std::vector<float> weight_;  ///< The largest magnitude that meets each channel.
  std::vector<ReaderWeights> readers_;
};

/// Nothing where it would not be worth it.
std::optional<Equalisation> find_equalisation(const Specialization& spec, const Fold& fold, const ChannelRange& range,
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
  Equalisation result;
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

/// `wanted`, or with a number where it is taken.
std::string free_name(const Network& network, const std::string& wanted) {
  const auto taken = [&](const std::string& name) {
    return network.find_tensor(name) != kNone || network.find_layer(name) != kNone;
  };
  std::string name = wanted;
  for (int n = 2; taken(name); ++n) name = fmt::format("{} {}", wanted, n);
  return name;
}

/// Adds the layer that rescales the tensor for the readers, right behind its producer; returns the name of its output.
std::string add_copy(Network& network, const Fold& fold, std::span<const std::int8_t> exponents) {
  TensorInfo factors;
  factors.name = free_name(network, network.tensor(fold.tensor).name + "/factors");
  factors.type = DataType::kFloat32;
  Shape shape{fold.channels};
  shape.resize(fold.trailing + 1, 1);
  factors.value = Tensor(DataType::kFloat32, shape);
  factors.shape = std::move(shape);
  for (std::size_t k = 0; k < exponents.size(); ++k) factors.value.data<float>()[k] = std::ldexp(1.0f, -exponents[k]);
  TensorInfo copy = network.tensor(fold.tensor);
  copy.name = free_name(network, copy.name + "/equalised");
  const std::string name = copy.name;
  const LayerId at = copy.producer == kNone ? 0 : copy.producer + 1;
  Layer layer;
  layer.name = name;
  layer.op = op_registry().find("", "Mul");
  layer.opset = AdjointContext::kAdjointOpset;
  layer.inputs = {fold.tensor, network.add_tensor(std::move(factors))};
  const TensorId output = network.add_tensor(std::move(copy));
  layer.outputs = {output};
  for (LayerId reader : fold.readers) std::ranges::replace(network.layer(reader).inputs, fold.tensor, output);
  network.layers.insert(network.layers.begin() + at, std::move(layer));
  for (TensorInfo& info : network.tensors)
    if (info.producer != kNone && info.producer >= at) ++info.producer;
  network.tensor(output).producer = at;
  network.rebuild_index();
  return name;
}

}  // namespace

std::vector<ChannelAxis> equalisable_tensors(const Specialization& spec, const Assignment& low) {
  const Network& network = *spec.network;
  const Folder folder(network);
  std::vector<ChannelAxis> result;
  const auto add = [&](TensorId id) {
    if (id == kNone) return;
    if (const auto fold = usable_fold(spec, low, folder, id))
      result.push_back({id, spec.shape(id)->size() - 1 - fold->trailing});
  };
  for (TensorId id : network.inputs) add(id);
  for (const Layer& layer : network.layers)
    for (TensorId id : layer.outputs) add(id);
  return result;
}

std::vector<Equalisation> find_equalisations(const Specialization& spec, const Assignment& low,
                                             const std::map<std::string, ChannelRange>& ranges,
                                             const std::map<std::string, float>& scales) {
  const Network& network = *spec.network;
  const Folder folder(network);
  const std::vector<ChannelAxis> tensors = equalisable_tensors(spec, low);
  std::vector<std::optional<Equalisation>> found(tensors.size());
  parallel_for(static_cast<std::int64_t>(tensors.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
      const std::string& name = network.tensor(tensors[t].tensor).name;
      const auto range = ranges.find(name);
      const auto scale = scales.find(name);
      if (range == ranges.end() || scale == scales.end() || !(scale->second > 0)) continue;
      const auto fold = usable_fold(spec, low, folder, tensors[t].tensor);
      found[t] = find_equalisation(spec, *fold, range->second, scale->second);
    }
  });
  std::vector<Equalisation> result;
  for (auto& each : found)
    if (each) result.push_back(std::move(*each));
  return result;
}

void apply_equalisation(Network& network, std::map<std::string, float>& scales, const Equalisation& equalisation) {
  const std::string where = fmt::format("[repair] tensor '{}'", equalisation.tensor);
  const TensorId tensor = network.find_tensor(equalisation.tensor);
  if (tensor == kNone) {
    std::vector<std::string> names;
    for (const TensorInfo& info : network.tensors)
      if (info.producer != kNone) names.push_back(info.name);
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: the network has no tensor of that name{}", where,
                                                         did_you_mean(equalisation.tensor, names)));
  }
  const auto fold = Folder(network).fold(tensor, equalisation.copies);
  if (!fold)
    throw Error(ErrorCode::kInvalidArgument,
                where +
                    ": expected a tensor between constants that can take factors per channel; is the answer of "
                    "another model, or are outputs marked that it did not have?");
  if (equalisation.exponents.size() != static_cast<std::size_t>(fold->channels))
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: expected {} exponents, one per channel, got {}", where,
                                                         fold->channels, equalisation.exponents.size()));
  if (!(equalisation.scale_after > 0) || !std::isfinite(equalisation.scale_after))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: expected a positive scale, got {}", where, equalisation.scale_after));
  std::vector<Tensor> values;
  for (const Edit& edit : fold->edits) {
    const Layer& layer = network.layer(edit.layer);
    auto value = rescaled(*constant_input(network, layer, edit.input), edit, equalisation.exponents);
    if (!value)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: a constant of layer '{}' leaves the range of float32 when it is rescaled", where,
                              layer.name));
    values.push_back(std::move(*value));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Edit& edit = fold->edits[i];
    const TensorId before = network.layer(edit.layer).inputs[edit.input];
    TensorInfo info;
    info.name = free_name(network, network.tensor(before).name + "/equalised");
    info.type = DataType::kFloat32;
    info.shape = edit.shape;
    info.value = std::move(values[i]);
    network.layer(edit.layer).inputs[edit.input] = network.add_tensor(std::move(info));
  }
  if (equalisation.copies)
    scales[add_copy(network, *fold, equalisation.exponents)] = equalisation.scale_after;
  else
    scales[equalisation.tensor] = equalisation.scale_after;
}

}  // namespace ulpscope
