#include "formats/quantized_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "formats/block_kernels.h"
#include "formats/rounding.h"

namespace ulpscope {
namespace {

/// Factors of a block's largest value under a second scale (1.5: it becomes 4 where the largest element is 6), and of
/// the scale of integers.
constexpr std::array kFactorsOfLargest{1.0f, 1.5f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f};
constexpr std::array kFactorsOfScale{1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.6f};

std::span<const float> factors_of(const Encoding& encoding) {
  if (encoding.rule != BlockScale::kLeastError) return std::span(kFactorsOfScale).first(1);
  if (encoding.second_scale) return kFactorsOfLargest;
  return kFactorsOfScale;
}

/// Of encodings whose scales are powers of two, or under a second one.
std::optional<BlockScaleForm> form_of(const Encoding& encoding, float second, bool keep_small) {
  const NumericFormat& scale = format_of(encoding.scale);
  const auto top = static_cast<float>(format_of(encoding.format).largest());
  if (encoding.scale == Format::kFloat8E8M0) {
    const bool down = encoding.rule == BlockScale::kLargestRoundedDown;
    return BlockScaleForm{down ? BlockScaleForm::Kind::kPowerBelow : BlockScaleForm::Kind::kPowerAbove, top, 1, 0,
                          ElementForm(scale)};
  }
  if (!encoding.second_scale) return std::nullopt;
  const auto smallest = static_cast<float>(std::ldexp(1.0, scale.min_exponent() - scale.mantissa_bits));
  return BlockScaleForm{BlockScaleForm::Kind::kUnderSecond, top, second, keep_small ? smallest : 0, ElementForm(scale)};
}

/// Blocks that are worked on at a time.
constexpr std::int64_t kTile = 64;
using Columns = std::array<float, kTile>;

/// Blocks side by side, as rows of columns: each column is a block.
struct Tile {
  const float* in;
  std::int64_t stride, rows, columns;
};

/// What blocks are multiplied by again: their scales, and these times the second scale.
struct TileScales {
  Columns own, by;
};

/// Quantizes blocks of one tensor.
class BlockQuantizer {
 public:
  BlockQuantizer(const Encoding& encoding, float second, const ScaleRules& rules)
      : kernels_(block_kernels()),
        elements_(format_of(encoding.format)),
        form_(form_of(encoding, second, rules.keep_small)),
        rounding_(encoding.scale == Format::kFloat32 ? Rounding::kNone : rounding_to(encoding.scale, true)),
        factors_(factors_of(encoding)),
        weights_(rules.weights),
        chosen_(rules.chosen),
        second_(second) {}

  bool tries_several() const { return factors_.size() > 1; }

  /// Of `count` blocks that follow each other.
  void quantize_rows(const float* in, std::int64_t block, std::int64_t count, bool scaled, float* out,
                     TileScales& scales) const {
    Columns largest;
    kernels_.largest_of_rows(in, block, count, largest.data());
    make_scales(largest, factors_[0], count, scales);
    kernels_.rows(elements_, in, scales.by.data(), block, count, scaled, out);
  }

  /// The scales of columns; `row`: the place of the first row along the axis; scale `number + c * step` is that of
  /// column c.
  void choose(const Tile& tile, std::int64_t row, std::int64_t number, std::int64_t step, TileScales& scales) const {
    if (tries_several() && !chosen_.empty()) {
      for (std::int64_t c = 0; c < tile.columns; ++c) {
        scales.own[c] = chosen_[static_cast<std::size_t>(number + c * step)];
        scales.by[c] = scales.own[c] * second_;
      }
      return;
    }
    Columns largest;
    kernels_.largest_of_columns(tile.in, tile.stride, tile.rows, tile.columns, largest.data());
    make_scales(largest, factors_[0], tile.columns, scales);
    if (!tries_several()) return;
    std::array<double, kTile> least{}, errors{};
    sum_errors(tile, row, scales, least);
    for (const float factor : factors_.subspan(1)) {
      TileScales other;
      make_scales(largest, factor, tile.columns, other);
      sum_errors(tile, row, other, errors);
      for (std::int64_t c = 0; c < tile.columns; ++c) {
        if (!(errors[c] < least[c])) continue;
        least[c] = errors[c];
        scales.own[c] = other.own[c];
        scales.by[c] = other.by[c];
      }
    }
  }

  /// The elements of a row of columns.
  void write(const float* in, const TileScales& scales, std::int64_t columns, bool scaled, float* out) const {
    kernels_.columns(elements_, in, scales.by.data(), columns, scaled, out);
  }

 private:
  void make_scales(const Columns& largest, float factor, std::int64_t count, TileScales& scales) const {
    float* const own = scales.own.data();
    if (form_) {
      kernels_.scales(*form_, factor, largest.data(), count, own);
    } else {
      constexpr float kLeast = 1e-5f;
      for (std::int64_t c = 0; c < count; ++c) own[c] = std::max(largest[c] / elements_.largest, kLeast) * factor;
      round_array(own, own, static_cast<std::size_t>(count), rounding_);
    }
    for (std::int64_t c = 0; c < count; ++c) scales.by[c] = scales.own[c] * second_;
    if (!form_ || form_->kind == BlockScaleForm::Kind::kUnderSecond) return;
    // Zeros are zeros with any scale, and processors are slow with subnormal ones.
    for (std::int64_t c = 0; c < count; ++c) scales.by[c] = largest[c] == 0 ? 1 : scales.by[c];
  }

  void sum_errors(const Tile& tile, std::int64_t row, const TileScales& scales,
                  std::array<double, kTile>& errors) const {
    errors.fill(0);
    Columns made;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* in = tile.in + r * tile.stride;
      write(in, scales, tile.columns, true, made.data());
      const double weight = weights_.empty() ? 1.0 : static_cast<double>(weights_[static_cast<std::size_t>(row + r)]);
      kernels_.add_errors(in, made.data(), weight, tile.columns, errors.data());
    }
  }

  const BlockKernels& kernels_;
  const ElementForm elements_;
  const std::optional<BlockScaleForm> form_;
  const Rounding rounding_;
  const std::span<const float> factors_, weights_, chosen_;
  const float second_;
};

/// Of a tensor whose axis is not its last dimension: blocks of neighboring columns lie side by side.
void quantize_columns_in_blocks(const BlockQuantizer& quantizer, const ScaleLayout& layout, std::int64_t outer,
                                const float* in, bool scaled, float* out, float* scales) {
  const std::int64_t inner = layout.inner, tiles = (inner + kTile - 1) / kTile, count = outer * layout.groups * tiles;
  parallel_for(count, items_per_task(count, layout.block * kTile), [&](std::int64_t begin, std::int64_t end) {
    TileScales own;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t b = t / tiles, column = t % tiles * kTile, columns = std::min(kTile, inner - column);
      const std::int64_t row = b % layout.groups * layout.block, rows = std::min(layout.block, layout.axis - row);
      const std::int64_t first = (b / layout.groups * layout.axis + row) * inner + column;
      quantizer.choose({in + first, inner, rows, columns}, row, b * inner + column, 1, own);
      if (scales != nullptr) std::copy_n(own.own.begin(), columns, scales + b * inner + column);
      for (std::int64_t r = 0; r < rows; ++r)
        quantizer.write(in + first + r * inner, own, columns, scaled, out + first + r * inner);
    }
  });
}

/// Of a tensor whose axis is its last dimension, with scales that are chosen among several. Blocks at the same place of
/// the axis are turned to columns.
void quantize_turned_blocks(const BlockQuantizer& quantizer, const ScaleLayout& layout, std::int64_t outer,
                            const float* in, bool scaled, float* out, float* scales) {
  const std::int64_t bundles = (outer + kTile - 1) / kTile, count = bundles * layout.groups;
  parallel_for(count, items_per_task(count, layout.block * kTile), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> turned(static_cast<std::size_t>(layout.block * kTile));
    TileScales own;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t group = t % layout.groups, row = group * layout.block;
      const std::int64_t rows = std::min(layout.block, layout.axis - row);
      const std::int64_t line = t / layout.groups * kTile, columns = std::min(kTile, outer - line);
      const auto place = [&](std::int64_t c) { return (line + c) * layout.axis + row; };
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) turned[r * kTile + c] = in[place(c) + r];
      quantizer.choose({turned.data(), kTile, rows, columns}, row, line * layout.groups + group, layout.groups, own);
      for (std::int64_t c = 0; scales != nullptr && c < columns; ++c)
        scales[(line + c) * layout.groups + group] = own.own[c];
      for (std::int64_t r = 0; r < rows; ++r)
        quantizer.write(turned.data() + r * kTile, own, columns, scaled, turned.data() + r * kTile);
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rows; ++r) out[place(c) + r] = turned[r * kTile + c];
    }
  });
}

/// Of a tensor whose axis is its last dimension.
void quantize_rows_in_blocks(const BlockQuantizer& quantizer, const ScaleLayout& layout, std::int64_t outer,
                             const float* in, bool scaled, float* out, float* scales) {
  const std::int64_t block = layout.block, whole = layout.axis / block, groups = layout.groups;
  const std::int64_t tiles = (groups + kTile - 1) / kTile, count = outer * tiles;
  parallel_for(count, items_per_task(count, block * kTile), [&](std::int64_t begin, std::int64_t end) {
    TileScales own;
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t line = t / tiles, first = t % tiles * kTile, last = std::min(first + kTile, groups);
      const auto quantize = [&](std::int64_t group, std::int64_t length, std::int64_t blocks) {
        const std::int64_t place = line * layout.axis + group * block;
        quantizer.quantize_rows(in + place, length, blocks, scaled, out + place, own);
        if (scales != nullptr) std::copy_n(own.own.begin(), blocks, scales + line * groups + group);
      };
      quantize(first, block, std::min(last, whole) - first);
      if (last > whole) quantize(whole, layout.axis % block, 1);
    }
  });
}

}  // namespace

bool chooses_scales(const Encoding& encoding) {
  return encoding.granularity == Granularity::kBlock && encoding.rule == BlockScale::kLeastError &&
         encoding.scale != Format::kFloat8E8M0;
}

void quantize_blocks(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float second,
                     const ScaleRules& rules, bool scaled, float* out, float* scales) {
  if (values.size() == 0) return;
  const BlockQuantizer quantizer(encoding, second, rules);
  const std::int64_t outer = values.size() / (layout.axis * layout.inner);
  if (layout.inner > 1)
    return quantize_columns_in_blocks(quantizer, layout, outer, values.data<float>(), scaled, out, scales);
  ScaleLayout lines = layout;
  if (rules.weights.empty() && layout.axis % layout.block == 0) {
    // Wherever along the axis they are, blocks are alike: each is a line, or all of them are one.
    lines.groups = quantizer.tries_several() ? 1 : outer * layout.groups;
    lines.axis = lines.groups * layout.block;
  }
  const auto quantize = quantizer.tries_several() ? quantize_turned_blocks : quantize_rows_in_blocks;
  quantize(quantizer, lines, values.size() / lines.axis, values.data<float>(), scaled, out, scales);
}

}  // namespace ulpscope
