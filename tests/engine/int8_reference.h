// int8 arithmetic in the plainest form: 64-bit integers, then the float operations in the order of docs/numerics.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope::testing {

inline Tensor tensor(const Shape& shape, const std::vector<float>& values) {
  return Tensor::of<float>(shape, std::span<const float>(values));
}

inline std::int64_t quantized(float x, float scale, std::int64_t low = -128) {
  const float ratio = x / scale;
  if (std::isnan(ratio)) return 0;
  return static_cast<std::int64_t>(
      std::clamp(std::nearbyint(static_cast<double>(ratio)), static_cast<double>(low), 127.0));
}

inline std::vector<std::int64_t> quantized(const std::vector<float>& x, float scale, std::int64_t low = -128) {
  std::vector<std::int64_t> result;
  for (float v : x) result.push_back(quantized(v, scale, low));
  return result;
}

/// max |w| / 127 over the elements that `channel_of` sends to the same channel.
template <typename ChannelOf>
std::vector<float> weight_scales(const std::vector<float>& w, std::size_t channels, ChannelOf channel_of) {
  std::vector<float> largest(channels, 0.0f);
  for (std::size_t i = 0; i < w.size(); ++i) largest[channel_of(i)] = std::max(largest[channel_of(i)], std::fabs(w[i]));
  for (float& s : largest) s = s > 0 ? s / 127.0f : 1.0f;
  return largest;
}

template <typename ChannelOf>
std::vector<std::int64_t> quantized_weights(const std::vector<float>& w, const std::vector<float>& scales,
                                            ChannelOf channel_of) {
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < w.size(); ++i) result.push_back(quantized(w[i], scales[channel_of(i)], -127));
  return result;
}

/// One defined order: the scales first, then the accumulator, then the bias.
inline float scaled(std::int64_t accumulator, float x_scale, float w_scale) {
  const float scale = x_scale * w_scale;
  return static_cast<float>(accumulator) * scale;
}

inline std::vector<float> random_values(std::mt19937& random, std::int64_t count, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& v : result) v = normal(random);
  return result;
}

/// A convolution of one or two spatial dimensions (one: height 1).
struct ConvolutionShape {
  std::int64_t n, c, h, w;  ///< Input.
  std::int64_t m, kh, kw;   ///< Output channels and kernel.
  std::int64_t groups = 1, stride = 1, dilation = 1, pad = 0;
  std::int64_t oh() const { return (h + 2 * pad - dilation * (kh - 1) - 1) / stride + 1; }
  std::int64_t ow() const { return (w + 2 * pad - dilation * (kw - 1) - 1) / stride + 1; }
  std::int64_t transposed_oh() const { return (h - 1) * stride - 2 * pad + dilation * (kh - 1) + 1; }
  std::int64_t transposed_ow() const { return (w - 1) * stride - 2 * pad + dilation * (kw - 1) + 1; }
};

inline std::vector<std::int64_t> convolve(const ConvolutionShape& s, const std::vector<std::int64_t>& x,
                                          const std::vector<std::int64_t>& w) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(s.n * s.m * s.oh() * s.ow()), 0);
  const std::int64_t per_group = s.c / s.groups, out_per_group = s.m / s.groups;
  std::size_t o = 0;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t m = 0; m < s.m; ++m)
      for (std::int64_t y = 0; y < s.oh(); ++y)
        for (std::int64_t z = 0; z < s.ow(); ++z, ++o)
          for (std::int64_t c = 0; c < per_group; ++c)
            for (std::int64_t i = 0; i < s.kh; ++i)
              for (std::int64_t j = 0; j < s.kw; ++j) {
                const std::int64_t a = y * s.stride - s.pad + i * s.dilation, b = z * s.stride - s.pad + j * s.dilation;
                if (a < 0 || a >= s.h || b < 0 || b >= s.w) continue;
                const std::int64_t channel = m / out_per_group * per_group + c;
                out[o] += x[((n * s.c + channel) * s.h + a) * s.w + b] * w[((m * per_group + c) * s.kh + i) * s.kw + j];
              }
  return out;
}

/// Weights are [c, m / groups, kh, kw].
inline std::vector<std::int64_t> convolve_transposed(const ConvolutionShape& s, const std::vector<std::int64_t>& x,
                                                     const std::vector<std::int64_t>& w) {
  const std::int64_t oh = s.transposed_oh(), ow = s.transposed_ow();
  std::vector<std::int64_t> out(static_cast<std::size_t>(s.n * s.m * oh * ow), 0);
  const std::int64_t per_group = s.c / s.groups, out_per_group = s.m / s.groups;
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t c = 0; c < s.c; ++c)
      for (std::int64_t y = 0; y < s.h; ++y)
        for (std::int64_t z = 0; z < s.w; ++z)
          for (std::int64_t m = 0; m < out_per_group; ++m)
            for (std::int64_t i = 0; i < s.kh; ++i)
              for (std::int64_t j = 0; j < s.kw; ++j) {
                const std::int64_t a = y * s.stride - s.pad + i * s.dilation, b = z * s.stride - s.pad + j * s.dilation;
                if (a < 0 || a >= oh || b < 0 || b >= ow) continue;
                const std::int64_t channel = c / per_group * out_per_group + m;
                out[((n * s.m + channel) * oh + a) * ow + b] +=
                    x[((n * s.c + c) * s.h + y) * s.w + z] * w[((c * out_per_group + m) * s.kh + i) * s.kw + j];
              }
  return out;
}

}  // namespace ulpscope::testing
