// Random convolutions, and what they are in float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "backend/cuda/convolution.h"
#include "formats/rounding.h"

namespace ulpscope::cuda::random_convolutions {

/// Elements of a tensor in its own type, and their values.
struct Elements {
  std::vector<unsigned char> bytes;
  std::vector<double> values;
};

inline void append(Elements& to, DataType type, float value) {
  const auto put = [&](auto bits) {
    const auto* begin = reinterpret_cast<const unsigned char*>(&bits);
    to.bytes.insert(to.bytes.end(), begin, begin + sizeof bits);
  };
  switch (type) {
    case DataType::kFloat16:
      put(f16_bits(value));
      to.values.push_back(round_to_f16(value));
      break;
    case DataType::kBFloat16:
      put(bf16_bits(value));
      to.values.push_back(round_to_bf16(value));
      break;
    case DataType::kInt8:
      put(static_cast<std::int8_t>(std::lrint(value * 40)));
      to.values.push_back(static_cast<std::int8_t>(std::lrint(value * 40)));
      break;
    default:
      put(value);
      to.values.push_back(value);
  }
}

/// Uniform in [-2, 2]; of int8 [-80, 80].
inline Elements random_elements(std::int64_t count, DataType type, bool tf32, std::mt19937& random) {
  Elements all;
  std::uniform_real_distribution<float> value(-2, 2);
  for (std::int64_t i = 0; i < count; ++i) append(all, type, tf32 ? round_to_tf32(value(random)) : value(random));
  return all;
}

/// Weights, channels innermost, as the generated kernel of the spec reads them.
inline Elements for_generated_kernel(const ConvolutionSpec& spec, const Elements& weights) {
  if (!has_depthwise_source(spec)) return weights;
  const auto channels = static_cast<std::size_t>(spec.weights[0]), taps = weights.values.size() / channels,
             size = size_of(spec.operands);
  Elements turned;
  for (std::size_t tap = 0; tap < taps; ++tap)
    for (std::size_t k = 0; k < channels; ++k) {
      const std::size_t from = k * taps + tap;
      turned.values.push_back(weights.values[from]);
      const auto begin = weights.bytes.begin() + static_cast<std::ptrdiff_t>(from * size);
      turned.bytes.insert(turned.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
  return turned;
}

/// The element in memory of a shape with channels as dimension 1 and innermost.
inline std::int64_t channels_last(const Shape& shape, const std::vector<std::int64_t>& at) {
  std::int64_t offset = at[0];
  for (std::size_t i = 2; i < shape.size(); ++i) offset = offset * shape[i] + at[i];
  return offset * shape[1] + at[1];
}

/// Moves to the next index; false after the last.
inline bool next_index(const Shape& shape, std::vector<std::int64_t>& at) {
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (++at[i] < shape[i]) return true;
    at[i] = 0;
  }
  return false;
}

struct Sums {
  std::vector<double> sum, magnitude;  ///< Of the products and of their magnitudes, in the order of memory.
};

/// The sums of one position of the output, for every channel.
inline void direct_position(const ConvolutionSpec& spec, const Elements& x, const Elements& weights,
                            const std::vector<std::int64_t>& at, Sums& made) {
  const std::int64_t per_group = spec.input[1] / spec.groups, outputs = spec.output[1] / spec.groups;
  Shape window = spec.weights;
  window[0] = window[1] = 1;
  const std::int64_t taps = num_elements(window);
  struct Tap {
    std::int64_t from, number;
  };
  std::vector<Tap> inside;
  std::vector<std::int64_t> tap(window.size(), 0);
  std::int64_t number = 0;
  do {
    std::vector<std::int64_t> from{at[0], 0};
    bool exists = true;
    for (std::size_t i = 2; i < window.size(); ++i) {
      from.push_back(at[i] * spec.strides[i - 2] - spec.pads_begin[i - 2] + tap[i] * spec.dilations[i - 2]);
      exists = exists && from[i] >= 0 && from[i] < spec.input[i];
    }
    if (exists) inside.push_back({channels_last(spec.input, from), number});
    ++number;
  } while (next_index(window, tap));
  const std::int64_t first = channels_last(spec.output, at);
  for (std::int64_t k = 0; k < spec.output[1]; ++k) {
    double sum = 0, magnitude = 0;
    for (const Tap& t : inside) {
      const double* a = x.values.data() + t.from + k / outputs * per_group;
      const double* b = weights.values.data() + (k * taps + t.number) * per_group;
      for (std::int64_t c = 0; c < per_group; ++c) {
        sum += a[c] * b[c];
        magnitude += std::fabs(a[c] * b[c]);
      }
    }
    made.sum[static_cast<std::size_t>(first + k)] = sum;
    made.magnitude[static_cast<std::size_t>(first + k)] = magnitude;
  }
}

/// The definition, one product after the other; positions in parallel.
inline Sums direct(const ConvolutionSpec& spec, const Elements& x, const Elements& weights, unsigned threads = 1) {
  const auto count = static_cast<std::size_t>(num_elements(spec.output));
  Sums made{std::vector<double>(count), std::vector<double>(count)};
  Shape positions = spec.output;
  positions[1] = 1;
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      std::vector<std::int64_t> at(positions.size(), 0);
      std::int64_t position = 0;
      do {
        if (position++ % threads == t) direct_position(spec, x, weights, at, made);
      } while (next_index(positions, at));
    });
  for (std::thread& thread : team) thread.join();
  return made;
}

/// What a step does, in float64; `operand`: of kBias and kResidual.
inline double step_of(ConvolutionStep::Kind kind, double value, double operand) {
  switch (kind) {
    case ConvolutionStep::Kind::kBias:
    case ConvolutionStep::Kind::kResidual:
      return value + operand;
    case ConvolutionStep::Kind::kRelu:
      return value < 0 ? 0 : value;
    case ConvolutionStep::Kind::kSigmoid:
      return 1 / (1 + std::exp(-value));
    case ConvolutionStep::Kind::kTanh:
      return std::tanh(value);
    case ConvolutionStep::Kind::kSwish:
      return value / (1 + std::exp(-value));
    case ConvolutionStep::Kind::kGelu:
      return value * 0.5 * std::erfc(-value * std::sqrt(0.5));
  }
  return value;
}

/// Sizes up to `largest` channels and extents; every kind of geometry that a spec can have.
inline ConvolutionSpec random_spec(std::mt19937& random, std::int64_t largest_channels, std::int64_t largest_extent) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto dims = static_cast<std::size_t>(pick(0, 5) == 0 ? 1 : pick(0, 5) == 0 ? 3 : 2);
  ConvolutionSpec spec;
  const int form = static_cast<int>(pick(0, 3));  // Plain, grouped, depthwise by eight, anything.
  std::int64_t inner = pick(1, largest_channels), outer = pick(1, largest_channels);
  if (form == 1) {
    spec.groups = pick(2, 12);
    inner = pick(1, std::max<std::int64_t>(1, largest_channels / spec.groups));
    outer = pick(1, std::max<std::int64_t>(1, largest_channels / spec.groups));
  } else if (form == 2) {
    spec.groups = 8 * pick(1, std::max<std::int64_t>(1, largest_channels / 8));
    inner = outer = 1;
  } else if (form == 0) {
    inner = 8 * std::max<std::int64_t>(1, inner / 8);
    outer = 8 * std::max<std::int64_t>(1, outer / 8);
  }
  const std::int64_t batch = pick(1, 3);
  spec.input = {batch, inner * spec.groups};
  spec.weights = {outer * spec.groups, inner};
  spec.output = {batch, outer * spec.groups};
  const bool plain = pick(0, 1) == 0;  // Like most layers: padded to keep its size.
  for (std::size_t i = 0; i < dims; ++i) {
    const std::int64_t taps = plain ? 2 * pick(0, 2) + 1 : pick(1, dims == 3 ? 3 : 6);
    spec.strides.push_back(pick(1, plain ? 2 : 3));
    spec.dilations.push_back(plain ? 1 : pick(1, 3));
    spec.pads_begin.push_back(plain ? taps / 2 : pick(0, 3));
    spec.pads_end.push_back(plain ? taps / 2 : pick(0, 3));
    const std::int64_t reach = (taps - 1) * spec.dilations[i] + 1, pads = spec.pads_begin[i] + spec.pads_end[i];
    const std::int64_t extent = std::max(pick(1, dims == 3 ? (largest_extent + 2) / 3 : largest_extent), reach - pads);
    spec.input.push_back(std::max<std::int64_t>(extent, 1));
    spec.weights.push_back(taps);
    spec.output.push_back((spec.input.back() + pads - reach) / spec.strides[i] + 1);
  }
  const DataType types[] = {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32, DataType::kInt8};
  spec.operands = types[pick(0, 3)];
  spec.tf32 = spec.operands == DataType::kFloat32 && pick(0, 1) == 0;
  spec.stored = spec.operands == DataType::kInt8 ? types[pick(0, 2)] : spec.operands;
  if (pick(0, 5) == 0) spec.stored = DataType::kFloat32;
  return spec;
}

}  // namespace ulpscope::cuda::random_convolutions
