#include "formats/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

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

/// The elements of a float format of at most 8 bits.
struct Grid {
  explicit Grid(const NumericFormat& format)
      : largest(static_cast<float>(format.largest())),
        lowest_exponent(static_cast<std::uint32_t>(format.min_exponent() + 127) << 23),
        fraction(static_cast<std::uint32_t>(format.mantissa_bits) << 23) {}

  /// The nearest element, ties to even; what is too large becomes the largest.
  float nearest(float x) const noexcept {
    constexpr float kInteger = 0x1.8p23f;  // Added to a small number, it leaves an integer in the low bits.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), sign = bits & 0x80000000u;
    float m = std::bit_cast<float>(bits ^ sign);
    m = m > largest ? largest : m;
    const std::uint32_t own = std::bit_cast<std::uint32_t>(m) & 0x7f800000u;
    const std::uint32_t step = (own > lowest_exponent ? own : lowest_exponent) - fraction;
    const float steps = (m * std::bit_cast<float>((254u << 23) - step) + kInteger) - kInteger;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(steps * std::bit_cast<float>(step)) | sign);
  }

  float largest;
  std::uint32_t lowest_exponent, fraction;  ///< As bits of a float32.
};

/// out[i] = the element nearest to in[i] / by(i), times times(i).
template <typename By, typename Times>
void to_elements(const NumericFormat& format, const float* in, float* out, std::int64_t count, const By& by,
                 const Times& times) {
  if (!format.is_float) {
    const auto low = static_cast<float>(format.lowest()), high = static_cast<float>(format.largest());
    for (std::int64_t i = 0; i < count; ++i) {
      quantize_array(in + i, out + i, 1, by(i), low, high, false);
      out[i] *= times(i);
    }
    return;
  }
  const Grid grid(format);
  for (std::int64_t i = 0; i < count; ++i) {
    // A block that vanishes, but for what is no number.
    const float x = by(i) == 0 ? in[i] * 0 : in[i] / by(i);
    out[i] = grid.nearest(x) * times(i);
  }
}

/// The same with one scale for all.
void to_elements(const NumericFormat& format, const float* in, float* out, std::int64_t count, float by, float times) {
  if (!format.is_float) {
    quantize_array(in, out, static_cast<std::size_t>(count), by, static_cast<float>(format.lowest()),
                   static_cast<float>(format.largest()), false);
    if (times != 1)
      for (std::int64_t i = 0; i < count; ++i) out[i] *= times;
    return;
  }
  to_elements(format, in, out, count, [by](std::int64_t) { return by; }, [times](std::int64_t) { return times; });
}

/// The least power of two that is not below `quotient`, within those of E8M0.
float power_of_two_above(float quotient) {
  int exponent = 0;
  const float fraction = std::frexp(quotient, &exponent);  // In [0.5, 1).
  if (!std::isfinite(quotient)) exponent = 128;
  if (fraction == 0.5f) --exponent;
  return std::ldexp(1.0f, quotient == 0 ? -127 : std::clamp(exponent, -127, 127));
}

/// What the values of a block are divided by, and what its elements are multiplied by again (its scale).
float block_scale(const Encoding& encoding, float largest, float second, bool keep_small) {
  const auto top = static_cast<float>(format_of(encoding.format).largest());
  if (encoding.scale == Format::kFloat8E8M0) return power_of_two_above(largest / top);
  if (encoding.second_scale) {
    if (largest == 0) return 1;
    const NumericFormat& format = format_of(encoding.scale);
    const float scale = Grid(format).nearest(largest / (top * second));
    const auto smallest = static_cast<float>(std::ldexp(1.0, format.min_exponent() - format.mantissa_bits));
    return scale == 0 && keep_small ? smallest : scale;
  }
  constexpr float kLeast = 1e-5f;
  const float scale = std::max(largest / top, kLeast);
  return encoding.scale == Format::kFloat32 ? scale : round_value(scale, rounding_to(encoding.scale, true));
}

float second_scale(const Encoding& encoding, const Tensor& values) {
  float largest = 0;
  for (const float x : values.values<float>())
    if (std::fabs(x) > largest) largest = std::fabs(x);
  const double all = format_of(encoding.format).largest() * format_of(encoding.scale).largest();
  const float scale = largest / static_cast<float>(all);
  return scale > 0 && std::isfinite(scale) ? scale : 1;
}

/// body(first element, elements, scale) for the blocks of a tensor whose axis is its last dimension, else (first
/// element, rows, scale) of blocks of `inner` columns, whose scales lie side by side.
template <typename Body>
void for_blocks(const ScaleLayout& layout, std::int64_t count, const Body& body) {
  const std::int64_t outer = layout.axis * layout.inner == 0 ? 0 : count / (layout.axis * layout.inner);
  parallel_for(outer * layout.groups, items_per_task(outer * layout.groups, layout.block * layout.inner),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b) {
                   const std::int64_t first = b % layout.groups * layout.block;
                   const std::int64_t rows = std::min(layout.block, layout.axis - first);
                   body((b / layout.groups * layout.axis + first) * layout.inner, rows, b * layout.inner);
                 }
               });
}

/// Elements (as the values that they stand for where `scaled`), and scales where these are wanted.
void quantize_blocks(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float second,
                     bool keep_small, bool scaled, float* out, float* scales) {
  const float* in = values.data<float>();
  const NumericFormat& format = format_of(encoding.format);
  const std::int64_t inner = layout.inner;
  for_blocks(layout, values.size(), [&](std::int64_t first, std::int64_t rows, std::int64_t place) {
    if (inner == 1) {
      float largest = 0;
      for (std::int64_t i = first; i < first + rows; ++i) {
        const float x = std::fabs(in[i]);
        largest = x > largest ? x : largest;
      }
      const float scale = block_scale(encoding, largest, second, keep_small);
      if (scales != nullptr) scales[place] = scale;
      return to_elements(format, in + first, out + first, rows, scale * second, scaled ? scale * second : 1);
    }
    std::vector<float> own(static_cast<std::size_t>(inner), 0.0f);
    for (std::int64_t r = 0; r < rows; ++r)
      max_magnitudes(in + first + r * inner, own.data(), static_cast<std::size_t>(inner));
    for (float& each : own) each = block_scale(encoding, each, second, keep_small);
    if (scales != nullptr) std::copy(own.begin(), own.end(), scales + place);
    for (std::int64_t r = 0; r < rows; ++r)
      to_elements(
          format, in + first + r * inner, out + first + r * inner, inner,
          [&](std::int64_t c) { return own[c] * second; },
          [&](std::int64_t c) { return scaled ? own[c] * second : 1.0f; });
  });
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
        to_elements(
            format, in + begin, out + begin, static_cast<std::int64_t>(count),
            [&](std::int64_t c) { return by[channel + c]; },
            [&](std::int64_t c) { return back ? by[channel + c] : 1.0f; });
      });
    return for_runs(layout, values.size(), [&](std::int64_t channel, std::int64_t begin, std::size_t count) {
      to_elements(format, in + begin, out + begin, static_cast<std::int64_t>(count), by[channel],
                  back ? by[channel] : 1);
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
  if (encoding.second_scale) result.second = rules.second > 0 ? rules.second : second_scale(encoding, values);
  result.scales = Tensor(DataType::kFloat32, layout.scales);
  quantize_blocks(encoding, layout, values, result.second, rules.keep_small, false, result.elements.data<float>(),
                  result.scales.data<float>());
  return result;
}

Tensor dequantized(const Quantized& from, const ScaleLayout& layout) {
  Tensor result(DataType::kFloat32, from.elements.shape());
  const float *elements = from.elements.data<float>(), *scales = from.scales.data<float>();
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.data<float>()[i] = elements[i] * (scales[layout.index(i)] * from.second);
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
    quantize_blocks(encoding, layout, values, second, false, true, out, nullptr);
    return;
  }
  const NumericFormat& format = format_of(encoding.format);
  parallel_for(values.size(), items_per_task(values.size(), 1), [&](std::int64_t begin, std::int64_t end) {
    to_elements(format, values.data<float>() + begin, out + begin, end - begin, scale, back ? scale : 1);
  });
}

Tensor quantized(const Tensor& values, const Quantization& by, bool back) {
  Tensor result(DataType::kFloat32, values.shape());
  if (by.is_integer())
    quantize_array(values.data<float>(), result.data<float>(), static_cast<std::size_t>(values.size()), by.scale,
                   by.lowest(), by.largest(), back);
  else
    to_elements(by.format(), values.data<float>(), result.data<float>(), values.size(), by.scale,
                back ? by.scale : 1.0f);
  return result;
}

}  // namespace ulpscope
