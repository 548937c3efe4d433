#include "formats/quantized.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "core/memory.h"
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

/// Within those of E8M0.
float power_of_two(int exponent) { return std::ldexp(1.0f, std::clamp(exponent, -127, 127)); }

/// The least power of two that is not below `quotient`.
float power_of_two_above(float quotient) {
  int exponent = 0;
  const float fraction = std::frexp(quotient, &exponent);  // In [0.5, 1).
  if (!std::isfinite(quotient)) exponent = 128;
  if (fraction == 0.5f) --exponent;
  return power_of_two(quotient == 0 ? -127 : exponent);
}

/// The power of two that brings values of the exponent of `largest` to that of `top`.
float power_of_two_for(float largest, float top) {
  if (largest == 0) return power_of_two(-127);
  return power_of_two(std::isfinite(largest) ? std::ilogb(largest) - std::ilogb(top) : 127);
}

/// Factors of a block's largest value under a second scale (1.5: it becomes 4 where the largest element is 6), and of
/// the scale of integers.
constexpr std::array kFactorsOfLargest{1.0f, 1.5f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f};
constexpr std::array kFactorsOfScale{1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.6f};

std::span<const float> factors_of(const Encoding& encoding) {
  if (encoding.rule != BlockScale::kLeastError) return std::span(kFactorsOfScale).first(1);
  if (encoding.second_scale) return kFactorsOfLargest;
  return kFactorsOfScale;
}

/// Makes the scale of a block: what its elements are multiplied by again.
class BlockScales {
 public:
  BlockScales(const Encoding& encoding, float second, bool keep_small)
      : encoding_(encoding),
        second_(second),
        keep_small_(keep_small),
        top_(static_cast<float>(format_of(encoding.format).largest())),
        grid_(format_of(encoding.scale)) {
    const NumericFormat& format = format_of(encoding.scale);
    smallest_ = static_cast<float>(std::ldexp(1.0, format.min_exponent() - format.mantissa_bits));
  }

  /// `factor`: see factors_of().
  float make(float largest, float factor) const {
    if (encoding_.scale == Format::kFloat8E8M0)
      return encoding_.rule == BlockScale::kLargestRoundedDown ? power_of_two_for(largest, top_)
                                                               : power_of_two_above(largest / top_);
    if (encoding_.second_scale) {
      if (largest == 0) return 1;
      const float scale = grid_.nearest(largest * factor / (top_ * second_));
      return scale == 0 && keep_small_ ? smallest_ : scale;
    }
    constexpr float kLeast = 1e-5f;
    const float scale = std::max(largest / top_, kLeast) * factor;
    return encoding_.scale == Format::kFloat32 ? scale : round_value(scale, rounding_to(encoding_.scale, true));
  }

 private:
  const Encoding& encoding_;
  const float second_;
  const bool keep_small_;
  const float top_;
  const Grid grid_;
  float smallest_;
};

float second_scale(const Encoding& encoding, const Tensor& values) {
  float largest = 0;
  for (const float x : values.values<float>())
    if (std::fabs(x) > largest) largest = std::fabs(x);
  const double all = format_of(encoding.format).largest() * format_of(encoding.scale).largest();
  const float scale = largest / static_cast<float>(all);
  return scale > 0 && std::isfinite(scale) ? scale : 1;
}

/// Columns that are worked on at a time: as many blocks.
constexpr std::int64_t kTile = 64;

/// Blocks side by side, as rows of columns: each column is a block.
struct Tile {
  const float* in;
  std::int64_t stride, rows, columns;
};
using Columns = std::array<float, kTile>;

/// out[i] = the element nearest to in[i] / by[i].
void to_elements(const NumericFormat& format, const Grid& grid, const float* in, const float* by, float* out,
                 std::int64_t count) {
  if (!format.is_float)
    return quantize_columns(in, out, static_cast<std::size_t>(count), by, static_cast<float>(format.lowest()),
                            static_cast<float>(format.largest()));
  // A block that vanishes, but for what is no number.
  for (std::int64_t i = 0; i < count; ++i) out[i] = grid.nearest(by[i] == 0 ? in[i] * 0 : in[i] / by[i]);
}

/// Quantizes tiles of one tensor.
class BlockQuantizer {
 public:
  BlockQuantizer(const Encoding& encoding, float second, const ScaleRules& rules)
      : format_(format_of(encoding.format)),
        grid_(format_),
        scales_(encoding, second, rules.keep_small),
        factors_(factors_of(encoding)),
        weights_(rules.weights),
        second_(second) {}

  /// The scale of each column; `row`: the place of the first row along the axis.
  void choose(const Tile& tile, std::int64_t row, Columns& scales) const {
    Columns largest{};
    for (std::int64_t r = 0; r < tile.rows; ++r)
      max_magnitudes(tile.in + r * tile.stride, largest.data(), static_cast<std::size_t>(tile.columns));
    for (std::int64_t c = 0; c < tile.columns; ++c) scales[c] = scales_.make(largest[c], factors_[0]);
    if (factors_.size() == 1) return;
    std::array<double, kTile> least{}, errors{};
    sum_errors(tile, row, scales, least);
    for (const float factor : factors_.subspan(1)) {
      Columns other;
      for (std::int64_t c = 0; c < tile.columns; ++c) other[c] = scales_.make(largest[c], factor);
      sum_errors(tile, row, other, errors);
      for (std::int64_t c = 0; c < tile.columns; ++c) {
        if (!(errors[c] < least[c])) continue;
        least[c] = errors[c];
        scales[c] = other[c];
      }
    }
  }

  /// The elements of a row, as the values that they stand for where `scaled`.
  void write(const float* in, const Columns& scales, std::int64_t columns, bool scaled, float* out) const {
    Columns by;
    for (std::int64_t c = 0; c < columns; ++c) by[c] = scales[c] * second_;
    to_elements(format_, grid_, in, by.data(), out, columns);
    if (!scaled) return;
    for (std::int64_t c = 0; c < columns; ++c) out[c] *= by[c];
  }

 private:
  void sum_errors(const Tile& tile, std::int64_t row, const Columns& scales, std::array<double, kTile>& errors) const {
    errors.fill(0);
    Columns made;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* in = tile.in + r * tile.stride;
      write(in, scales, tile.columns, true, made.data());
      const double weight = weights_.empty() ? 1.0 : static_cast<double>(weights_[static_cast<std::size_t>(row + r)]);
      for (std::int64_t c = 0; c < tile.columns; ++c) {
        const double error = static_cast<double>(in[c]) - static_cast<double>(made[c]);
        errors[c] += weight * (error * error);
      }
    }
  }

  const NumericFormat& format_;
  const Grid grid_;
  const BlockScales scales_;
  const std::span<const float> factors_, weights_;
  const float second_;
};

/// Of a tensor whose axis is not its last dimension: blocks of neighboring columns lie side by side.
void quantize_columns_in_blocks(const BlockQuantizer& quantizer, const ScaleLayout& layout, std::int64_t outer,
                                const float* in, bool scaled, float* out, float* scales) {
  const std::int64_t inner = layout.inner, tiles = (inner + kTile - 1) / kTile, count = outer * layout.groups * tiles;
  parallel_for(count, items_per_task(count, layout.block * kTile), [&](std::int64_t begin, std::int64_t end) {
    Columns own;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t b = t / tiles, column = t % tiles * kTile, columns = std::min(kTile, inner - column);
      const std::int64_t row = b % layout.groups * layout.block, rows = std::min(layout.block, layout.axis - row);
      const std::int64_t first = (b / layout.groups * layout.axis + row) * inner + column;
      quantizer.choose({in + first, inner, rows, columns}, row, own);
      if (scales != nullptr) std::copy_n(own.begin(), columns, scales + b * inner + column);
      for (std::int64_t r = 0; r < rows; ++r)
        quantizer.write(in + first + r * inner, own, columns, scaled, out + first + r * inner);
    }
  });
}

/// Of a tensor whose axis is its last dimension. Blocks at the same place of the axis are turned to columns.
void quantize_rows_in_blocks(const BlockQuantizer& quantizer, const ScaleLayout& layout, std::int64_t outer,
                             const float* in, bool scaled, float* out, float* scales) {
  const std::int64_t bundles = (outer + kTile - 1) / kTile, count = bundles * layout.groups;
  parallel_for(count, items_per_task(count, layout.block * kTile), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> turned(static_cast<std::size_t>(layout.block * kTile));
    Columns own;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t group = t % layout.groups, row = group * layout.block;
      const std::int64_t rows = std::min(layout.block, layout.axis - row);
      const std::int64_t line = t / layout.groups * kTile, columns = std::min(kTile, outer - line);
      const auto place = [&](std::int64_t c) { return (line + c) * layout.axis + row; };
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) turned[r * kTile + c] = in[place(c) + r];
      quantizer.choose({turned.data(), kTile, rows, columns}, row, own);
      for (std::int64_t c = 0; scales != nullptr && c < columns; ++c)
        scales[(line + c) * layout.groups + group] = own[c];
      for (std::int64_t r = 0; r < rows; ++r)
        quantizer.write(turned.data() + r * kTile, own, columns, scaled, turned.data() + r * kTile);
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) out[place(c) + r] = turned[r * kTile + c];
    }
  });
}

/// Elements (as the values that they stand for where `scaled`), and scales where these are wanted.
void quantize_blocks(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float second,
                     const ScaleRules& rules, bool scaled, float* out, float* scales) {
  if (values.size() == 0) return;
  const BlockQuantizer quantizer(encoding, second, rules);
  std::int64_t outer = values.size() / (layout.axis * layout.inner);
  if (layout.inner > 1)
    return quantize_columns_in_blocks(quantizer, layout, outer, values.data<float>(), scaled, out, scales);
  ScaleLayout lines = layout;
  if (rules.weights.empty() && layout.axis % layout.block == 0) {
    // Wherever along the axis they are, blocks are alike.
    outer *= layout.groups;
    lines.axis = layout.block;
    lines.groups = 1;
  }
  quantize_rows_in_blocks(quantizer, lines, outer, values.data<float>(), scaled, out, scales);
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
  Quantized result{weights_tensor(DataType::kFloat32, values.shape()), {}, 1};
  if (encoding.granularity != Granularity::kBlock) {
    const NumericFormat& format = format_of(encoding.format);
    result.scales = own_scales(format, layout, values);
    quantize(format, layout, values, result.scales, result.elements.data<float>(), false);
    return result;
  }
  if (encoding.second_scale) result.second = rules.second > 0 ? rules.second : second_scale(encoding, values);
  result.scales = Tensor(DataType::kFloat32, layout.scales);
  quantize_blocks(encoding, layout, values, result.second, rules, false, result.elements.data<float>(),
                  result.scales.data<float>());
  return result;
}

Tensor dequantized(const Quantized& from, const ScaleLayout& layout) {
  Tensor result = weights_tensor(DataType::kFloat32, from.elements.shape());
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
