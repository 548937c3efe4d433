#include "formats/quantized.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "formats/rounding.h"

namespace ulpscope {
namespace {

/// The columns of a matrix: whole rows at a time, since every run of one scale is one element.
bool is_by_columns(const ScaleLayout& layout) {
  return !layout.shared && !layout.blocked && layout.inner == 1 && layout.rows == 0;
}

/// body(first scale, first element, count) for pieces of rows, in parallel over blocks of columns.
template <typename Body>
void for_columns(const ScaleLayout& layout, std::int64_t count, const Body& body) {
  parallel_for(layout.axis, 256, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = 0; begin < count; begin += layout.axis)
      body(first, begin + first, static_cast<std::size_t>(last - first));
  });
}

/// body(scale, first element, count) for the runs of elements that share a scale, in order.
template <typename Body>
void for_runs(const ScaleLayout& layout, std::int64_t count, const Body& body) {
  const std::int64_t run = layout.shared ? count : layout.inner;
  for (std::int64_t begin = 0; begin < count; begin += run)
    body(layout.index(begin), begin, static_cast<std::size_t>(run));
}

}  // namespace

float scale_for(const NumericFormat& format, float largest) noexcept {
  const float scale = largest / static_cast<float>(format.largest());
  return scale < kSmallestScale ? 1.0f : scale;
}

Tensor own_scales(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values) {
  Tensor result(DataType::kFloat32, layout.scales);
  float* scales = result.data<float>();
  std::fill_n(scales, result.size(), 0.0f);
  const float* in = values.data<float>();
  if (is_by_columns(layout))
    for_columns(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      max_magnitudes(in + begin, scales + channel, count);
    });
  else
    for_runs(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      float largest = scales[channel];
      for (const float* x = in + begin; x != in + begin + count; ++x) largest = std::max(largest, std::fabs(*x));
      scales[channel] = largest;
    });
  for (std::int64_t c = 0; c < result.size(); ++c) scales[c] = scale_for(format, scales[c]);
  return result;
}

void quantize(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values, const Tensor& scales,
              float* out, bool back) {
  const float* in = values.data<float>();
  const float* by = scales.data<float>();
  const auto low = static_cast<float>(format.lowest()), high = static_cast<float>(format.largest());
  if (is_by_columns(layout) && !back)
    for_columns(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      quantize_columns(in + begin, out + begin, count, by + channel, low, high);
    });
  else
    for_runs(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      quantize_array(in + begin, out + begin, count, by[channel], low, high, back);
    });
}

Tensor quantized(const Tensor& values, const Quantization& by, bool back) {
  Tensor result(DataType::kFloat32, values.shape());
  quantize_array(values.data<float>(), result.data<float>(), static_cast<std::size_t>(values.size()), by.scale,
                 by.lowest(), by.largest(), back);
  return result;
}

}  // namespace ulpscope
