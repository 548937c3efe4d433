#include "formats/quantized.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "formats/block_kernels.h"
#include "formats/quantized_blocks.h"
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

/// The elements nearest to values / by, times `by` again where `back`.
void to_elements(const NumericFormat& format, const float* in, float* out, std::int64_t count, float by, bool back) {
  if (format.is_float) return block_kernels().rows(ElementForm(format), in, &by, count, 1, back, out);
  quantize_array(in, out, static_cast<std::size_t>(count), by, static_cast<float>(format.lowest()),
                 static_cast<float>(format.largest()), back);
}

/// The scale above those of blocks; 1 where there is none.
float second_of(const Encoding& encoding, const Tensor& values, const ScaleRules& rules) {
  if (!encoding.second_scale) return 1;
  if (rules.second > 0) return rules.second;
  float largest = 0;
  block_kernels().largest_of_rows(values.data<float>(), values.size(), 1, &largest);
  const double all = format_of(encoding.format).largest() * format_of(encoding.scale).largest();
  const float scale = largest / static_cast<float>(all);
  return scale > 0 && std::isfinite(scale) ? scale : 1;
}

/// `out` may be the values.
void quantize_and_back(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                       const ScaleRules& rules, ChosenScales* chosen, float* out) {
  if (encoding.granularity != Granularity::kBlock) {
    const NumericFormat& format = format_of(encoding.format);
    return quantize(format, layout, values, own_scales(format, layout, values), out, true);
  }
  const float second = second_of(encoding, values, rules);
  float* scales = nullptr;
  if (chosen != nullptr) {
    *chosen = {Tensor(DataType::kFloat32, layout.scales), second};
    scales = chosen->scales.data<float>();
  }
  quantize_blocks(encoding, layout, values, second, rules, true, out, scales);
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
  if (format.is_float) {
    if (is_by_columns(layout))
      return for_columns(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
        block_kernels().columns(ElementForm(format), in + begin, by + channel, static_cast<std::int64_t>(count), back,
                                out + begin);
      });
    return for_runs(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      to_elements(format, in + begin, out + begin, static_cast<std::int64_t>(count), by[channel], back);
    });
  }
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

float scale_from_int8(const Encoding& encoding, float int8_scale) noexcept {
  const NumericFormat& format = format_of(encoding.format);
  if (!format.is_float) return int8_scale;
  const double scales = encoding.second_scale ? format_of(encoding.scale).largest() : 1;
  return int8_scale * 127 / static_cast<float>(format.largest() * scales);
}

Quantized quantize(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, const ScaleRules& rules) {
  Quantized result{Tensor(DataType::kFloat32, values.shape()), {}, 1};
  if (encoding.granularity != Granularity::kBlock) {
    const NumericFormat& format = format_of(encoding.format);
    result.scales = own_scales(format, layout, values);
    quantize(format, layout, values, result.scales, result.elements.data<float>(), false);
    return result;
  }
  result.second = second_of(encoding, values, rules);
  result.scales = Tensor(DataType::kFloat32, layout.scales);
  quantize_blocks(encoding, layout, values, result.second, rules, false, result.elements.data<float>(),
                  result.scales.data<float>());
  return result;
}

Tensor quantized_and_back(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                          const ScaleRules& rules, ChosenScales* chosen) {
  Tensor result(DataType::kFloat32, values.shape());
  quantize_and_back(encoding, layout, values, rules, chosen, result.data<float>());
  return result;
}

void quantize_and_back(const Encoding& encoding, const ScaleLayout& layout, Tensor& values, const ScaleRules& rules,
                       ChosenScales* chosen) {
  quantize_and_back(encoding, layout, values, rules, chosen, values.data<float>());
}

Tensor dequantized(const Quantized& from, const ScaleLayout& layout) {
  Tensor result(DataType::kFloat32, from.elements.shape());
  const float *elements = from.elements.data<float>(), *scales = from.scales.data<float>();
  float* const out = result.data<float>();
  parallel_for(result.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = elements[i] * (scales[layout.index(i)] * from.second);
  });
  return result;
}

Tensor summed_elements(const Encoding& encoding, const Quantized& from, const ScaleLayout& layout) {
  return encoding.granularity == Granularity::kBlock ? dequantized(from, layout) : from.elements;
}

Tensor outer_scales(const Encoding& encoding, const Quantized& from) {
  return encoding.granularity == Granularity::kBlock ? Tensor::of<float>({1}, {1.0f}) : from.scales;
}

void quantize_activation(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float scale,
                         float* out, bool back) {
  const float second = encoding.second_scale && scale > 0 ? scale : 1;
  if (encoding.granularity == Granularity::kBlock) {
    quantize_blocks(encoding, layout, values, second, {.keep_small = false}, true, out, nullptr);
    return;
  }
  const NumericFormat& format = format_of(encoding.format);
  parallel_for(values.size(), items_per_task(values.size(), 1), [&](std::int64_t begin, std::int64_t end) {
    to_elements(format, values.data<float>() + begin, out + begin, end - begin, scale, back);
  });
}

Tensor quantized(const Tensor& values, const Quantization& by, bool back) {
  Tensor result(DataType::kFloat32, values.shape());
  to_elements(by.format(), values.data<float>(), result.data<float>(), values.size(), by.scale, back);
  return result;
}

}  // namespace ulpscope
