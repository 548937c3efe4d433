// Scales from largest values, and elements of a format, against their definition element by element.
#include "formats/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "formats/quantized_blocks.h"

namespace ulpscope::testing {
namespace {

const NumericFormat& int8() { return format_of(Format::kInt8); }

Tensor random_values(const Shape& shape) {
  std::mt19937 random(static_cast<std::uint32_t>(shape.size()));
  Tensor result(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.data<float>()[i] = std::normal_distribution<float>(0, 3)(random);
  return result;
}

/// Scales and elements by one division each.
void expect_definition(const ScaleLayout& layout, const Tensor& values) {
  const Tensor scales = own_scales(int8(), layout, values);
  ASSERT_EQ(scales.size(), num_elements(layout.scales));
  std::vector<float> largest(static_cast<std::size_t>(scales.size()), 0.0f);
  const float* in = values.data<float>();
  for (std::int64_t i = 0; i < values.size(); ++i) {
    float& known = largest[static_cast<std::size_t>(layout.index(i))];
    known = std::max(known, std::fabs(in[i]));
  }
  for (std::int64_t c = 0; c < scales.size(); ++c)
    EXPECT_EQ(scales.data<float>()[c], scale_for(int8(), largest[static_cast<std::size_t>(c)]));
  Tensor elements(DataType::kFloat32, values.shape()), back(DataType::kFloat32, values.shape());
  quantize(int8(), layout, values, scales, elements.data<float>(), false);
  quantize(int8(), layout, values, scales, back.data<float>(), true);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const float scale = scales.data<float>()[layout.index(i)];
    const float element = std::clamp(std::nearbyint(in[i] / scale), -128.0f, 127.0f);
    EXPECT_EQ(elements.data<float>()[i], element) << i;
    EXPECT_EQ(back.data<float>()[i], element * scale) << i;
  }
}

ScaleLayout per_channel(int axis, const Shape& shape) {
  return {{.format = Format::kInt8, .granularity = Granularity::kChannel, .axis = axis}, shape};
}

TEST(Quantized, ScalesOfATensorOfRowsAndOfColumns) {
  const Shape shape{6, 5, 7};
  expect_definition(ScaleLayout(), random_values(shape));
  for (int axis = 0; axis < 3; ++axis) expect_definition(per_channel(axis, shape), random_values(shape));
}

/// A transposed convolution of 2 groups: rows 0 to 2 have channels 0 to 3, the others channels 4 to 7.
TEST(Quantized, GroupsHaveChannelsOfTheirOwn) {
  const Shape shape{6, 4, 3};
  ScaleLayout layout = per_channel(1, shape);
  layout.rows = 3;
  layout.scales = {8};
  EXPECT_EQ(layout.index(0), 0);
  EXPECT_EQ(layout.index(3 * 12 + 2 * 3), 6);
  expect_definition(layout, random_values(shape));
}

TEST(Quantized, TinyChannelsHaveZerosAndNanHasNoSay) {
  const Tensor values = Tensor::of<float>({2, 2}, {0x1p-120f, 0, std::nanf(""), 254});
  const ScaleLayout layout = per_channel(0, {2, 2});
  const Tensor scales = own_scales(int8(), layout, values);
  EXPECT_EQ(scales.data<float>()[0], 1);
  EXPECT_EQ(scales.data<float>()[1], 2);
  Tensor elements(DataType::kFloat32, {2, 2});
  quantize(int8(), layout, values, scales, elements.data<float>(), false);
  EXPECT_EQ(elements.data<float>()[0], 0);
  EXPECT_EQ(elements.data<float>()[2], 0);
  EXPECT_EQ(elements.data<float>()[3], 127);
}

TEST(Quantized, ActivationsHaveTheRangeOfTheirFormat) {
  const Tensor values = Tensor::of<float>({4}, {-300, -0.75f, 0.75f, 300});
  const Tensor with_sign = quantized(values, to_bytes(0.5f, false), false),
               without = quantized(values, to_bytes(0.5f, true), true);
  EXPECT_TRUE(std::ranges::equal(with_sign.values<float>(), std::vector<float>{-128, -2, 2, 127}));
  EXPECT_TRUE(std::ranges::equal(without.values<float>(), std::vector<float>{0, 0, 1, 127.5f}));
}

/// Every element, every middle between two, and what lies right beside these.
std::vector<float> around_elements(const NumericFormat& format) {
  std::vector<float> elements;
  for (std::uint32_t code = 0; code < 1u << format.bits(); ++code)
    if (const double value = decode(format, code); std::isfinite(value)) elements.push_back(static_cast<float>(value));
  std::ranges::sort(elements);
  std::vector<float> result = elements;
  for (std::size_t i = 0; i + 1 < elements.size(); ++i) {
    const float middle = 0.5f * (elements[i] + elements[i + 1]);
    for (const float x : {middle, std::nextafter(middle, -1e9f), std::nextafter(middle, 1e9f)}) result.push_back(x);
  }
  for (const float x : {1e30f, -1e30f, 1e-30f, -1e-30f, 449.0f, -6.5f}) result.push_back(x);
  return result;
}

TEST(Quantized, ElementsOfFloatFormatsAreTheNearest) {
  for (const Format id : {Format::kFloat8E4M3, Format::kFloat8E5M2, Format::kFloat4E2M1}) {
    const NumericFormat& format = format_of(id);
    const std::vector<float> values = around_elements(format);
    const Tensor in = Tensor::of<float>({std::ssize(values)}, std::span(values));
    const Tensor out = quantized(in, {.scale = 1, .elements = id}, false);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double wanted = decode(format, encode(format, static_cast<double>(values[i]), {.saturate = true}));
      EXPECT_EQ(static_cast<double>(out.data<float>()[i]), wanted) << format.name << " " << values[i];
      EXPECT_EQ(std::signbit(out.data<float>()[i]), std::signbit(wanted)) << format.name << " " << values[i];
    }
  }
}

Encoding blocks(Format format, std::int64_t block, Format scale, bool second_scale = false) {
  return {format, Granularity::kBlock, 0, block, scale, second_scale};
}
const Encoding kMXFP8 = blocks(Format::kFloat8E4M3, 32, Format::kFloat8E8M0);

TEST(Quantized, BlocksHaveOneScaleWhereverTheirAxisLies) {
  for (Encoding encoding :
       {kMXFP8, blocks(Format::kFloat4E2M1, 32, Format::kFloat8E8M0), blocks(Format::kInt4, 32, Format::kFloat16),
        blocks(Format::kFloat4E2M1, 16, Format::kFloat8E4M3, true)}) {
    const std::int64_t rows = 2 * encoding.block, columns = 5;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    Tensor down(DataType::kFloat32, {rows, columns}), across(DataType::kFloat32, {columns, rows});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        across.data<float>()[c * rows + r] = down.data<float>()[r * columns + c] =
            c == 4 && r < encoding.block ? 0.0f : normal(random) * static_cast<float>(1 << (5 * c));
    encoding.axis = 0;
    const ScaleLayout by_rows(encoding, down.shape());
    const Quantized a = quantize(encoding, by_rows, down);
    encoding.axis = 1;
    const ScaleLayout by_columns(encoding, across.shape());
    const Quantized b = quantize(encoding, by_columns, across);
    EXPECT_EQ(a.second, b.second);
    const Tensor x = dequantized(a, by_rows), y = dequantized(b, by_columns);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(x.data<float>()[r * columns + c], y.data<float>()[c * rows + r])
            << to_string(encoding) << r << " " << c;
    // Of an activation with that second scale, but for blocks that vanish there.
    Tensor run(DataType::kFloat32, across.shape());
    quantize_activation(encoding, by_columns, across, b.second, run.data<float>(), true);
    if (!encoding.second_scale) {
      EXPECT_TRUE(std::ranges::equal(run.values<float>(), y.values<float>())) << to_string(encoding);
    }
  }
}

TEST(Quantized, ScalesOfPowersOfTwoAreNotBelowTheQuotient) {
  for (const auto& [largest, scale] : {std::pair(448.0f, 1.0f),
                                       {449.0f, 2.0f},
                                       {896.0f, 2.0f},
                                       {0.0f, 0x1p-127f},
                                       {447.0f, 1.0f},
                                       {224.0f, 0.5f},
                                       {1e-42f, 0x1p-127f},
                                       {3e38f, 0x1p120f}}) {
    Tensor values(DataType::kFloat32, {1, 32});
    std::fill_n(values.data<float>(), 32, 0.0f);
    values.data<float>()[7] = -largest;
    Encoding own = kMXFP8;
    own.axis = 1;
    EXPECT_EQ(quantize(own, ScaleLayout(own, values.shape()), values).scales.data<float>()[0], scale) << largest;
  }
}

TEST(Quantized, ScalesRoundedDownBringTheLargestExponentToThatOfTheFormat) {
  for (const auto& [largest, scale] : {std::pair(448.0f, 1.0f),
                                       {449.0f, 1.0f},
                                       {511.0f, 1.0f},
                                       {512.0f, 2.0f},
                                       {0.0f, 0x1p-127f},
                                       {256.0f, 1.0f},
                                       {255.0f, 0.5f},
                                       {1e-42f, 0x1p-127f},
                                       {3e38f, 0x1p119f}}) {
    Tensor values(DataType::kFloat32, {1, 32});
    std::fill_n(values.data<float>(), 32, 0.0f);
    values.data<float>()[7] = -largest;
    Encoding own = kMXFP8;
    own.axis = 1;
    own.rule = BlockScale::kLargestRoundedDown;
    EXPECT_EQ(quantize(own, ScaleLayout(own, values.shape()), values).scales.data<float>()[0], scale) << largest;
  }
}

TEST(Quantized, ElementsAndBackAreTheSameInPlace) {
  const Shape shape{6, 64};
  for (const Format format : {Format::kInt8, Format::kInt4, Format::kFloat8E4M3, Format::kFloat4E2M1})
    for (const Granularity granularity : {Granularity::kTensor, Granularity::kChannel, Granularity::kBlock}) {
      Encoding encoding{.format = format, .granularity = granularity, .axis = 1, .block = 32};
      if (granularity == Granularity::kBlock && format_of(format).is_float) encoding.scale = Format::kFloat8E8M0;
      Tensor values = random_values(shape);
      values.data<float>()[3] = -0.0f;
      values.data<float>()[70] = -1e-30f;
      const ScaleLayout layout = granularity == Granularity::kTensor ? ScaleLayout() : ScaleLayout(encoding, shape);
      const Tensor expected = dequantized(quantize(encoding, layout, values), layout);
      const Tensor apart = quantized_and_back(encoding, layout, values);
      quantize_and_back(encoding, layout, values);
      for (std::int64_t i = 0; i < values.size(); ++i) {
        const auto bits = [&](const Tensor& of) { return std::bit_cast<std::uint32_t>(of.data<float>()[i]); };
        ASSERT_EQ(bits(apart), bits(expected)) << to_string(encoding) << " " << i;
        ASSERT_EQ(bits(values), bits(expected)) << to_string(encoding) << " " << i;
      }
    }
}

/// To the nearest value of a format, found among its codes.
double nearest_of(const NumericFormat& format, double x) {
  return decode(format, encode(format, x, {.saturate = true}));
}

double element_of(const NumericFormat& format, float x, float by) {
  if (format.is_float) return nearest_of(format, static_cast<double>(x / by));
  return std::clamp(std::nearbyint(static_cast<double>(x / by)), format.lowest(), format.largest());
}

/// The scale of one block by trying all, as docs/numerics.md says it.
float best_scale(const Encoding& encoding, const std::vector<float>& block, const std::vector<float>& weights,
                 float second) {
  const NumericFormat &format = format_of(encoding.format), &scales = format_of(encoding.scale);
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::fabs(x));
  const std::vector<float> factors = encoding.second_scale
                                         ? std::vector<float>{1, 1.5f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f}
                                         : std::vector<float>{1, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f, 0.6f};
  float best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const float factor : factors) {
    float scale = 1;
    if (!encoding.second_scale)
      scale = std::max(largest / 7, 1e-5f) * factor;
    else if (largest > 0)
      scale = largest * factor / (6 * second);
    scale = static_cast<float>(nearest_of(scales, static_cast<double>(scale)));
    if (encoding.second_scale && scale == 0) scale = 0x1p-9f;
    double sum = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const float made = static_cast<float>(element_of(format, block[i], scale * second)) * (scale * second);
      const double error = static_cast<double>(block[i]) - static_cast<double>(made);
      sum += static_cast<double>(weights[i]) * (error * error);
    }
    if (!(sum < least)) continue;
    least = sum;
    best = scale;
  }
  return best;
}

/// With scales that are given nothing is chosen: with others than those of `made`, too.
void expect_known_scales(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                         const Quantized& made) {
  for (const float factor : {1.0f, 2.0f}) {
    std::vector<float> scales(made.scales.values<float>().begin(), made.scales.values<float>().end());
    for (float& each : scales) each *= factor;
    const Tensor again = quantized_and_back(encoding, layout, values, {.second = made.second, .chosen = scales});
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const float by = scales[static_cast<std::size_t>(layout.index(i))] * made.second;
      ASSERT_EQ(again.data<float>()[i],
                static_cast<float>(element_of(format_of(encoding.format), values.data<float>()[i], by)) * by)
          << to_string(encoding) << " element " << i;
    }
  }
  ChosenScales chosen;
  quantized_and_back(encoding, layout, values, {}, &chosen);
  const Quantized without = quantize(encoding, layout, values);
  ASSERT_TRUE(std::ranges::equal(chosen.scales.values<float>(), without.scales.values<float>()));
  ASSERT_EQ(chosen.second, without.second);
}

/// Blocks along each axis of a tensor, one of them of zeros, more of them side by side than are worked on at a time,
/// and a last one that may be shorter.
void expect_least_error(Encoding encoding, bool weighted, std::int64_t length) {
  encoding.rule = BlockScale::kLeastError;
  std::mt19937 random(static_cast<std::uint32_t>(length) + (weighted ? 1 : 0));
  std::normal_distribution<float> normal;
  for (int axis = 0; axis < 3; ++axis) {
    Shape shape{3, 23, 67};
    shape[static_cast<std::size_t>(axis)] = length;
    encoding.axis = axis;
    const ScaleLayout layout(encoding, shape);
    Tensor values(DataType::kFloat32, shape);
    for (std::int64_t i = 0; i < values.size(); ++i)
      values.data<float>()[i] = layout.index(i) == 1 ? 0.0f : normal(random) * std::exp2(normal(random));
    std::vector<float> weights(static_cast<std::size_t>(length), 1.0f);
    if (weighted)
      for (float& each : weights) each = std::exp(3 * normal(random));
    const Quantized made = quantize(encoding, layout, values,
                                    {.weights = weighted ? std::span<const float>(weights) : std::span<const float>()});
    std::vector<std::vector<float>> blocks(static_cast<std::size_t>(made.scales.size())), counted(blocks.size());
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const auto block = static_cast<std::size_t>(layout.index(i));
      blocks[block].push_back(values.data<float>()[i]);
      counted[block].push_back(weights[static_cast<std::size_t>(i / layout.inner % layout.axis)]);
    }
    for (std::size_t b = 0; b < blocks.size(); ++b)
      ASSERT_EQ(made.scales.data<float>()[b], best_scale(encoding, blocks[b], counted[b], made.second))
          << to_string(encoding) << " block " << b;
    for (std::int64_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(static_cast<double>(made.elements.data<float>()[i]),
                element_of(format_of(encoding.format), values.data<float>()[i],
                           made.scales.data<float>()[layout.index(i)] * made.second))
          << to_string(encoding) << " element " << i;
    expect_known_scales(encoding, layout, values, made);
  }
}

TEST(Quantized, ScalesOfLeastErrorAreThoseThatTryingAllGives) {
  for (const bool weighted : {false, true})
    for (const std::int64_t length : {32, 64, 72}) {
      expect_least_error(blocks(Format::kInt4, 32, Format::kFloat16), weighted, length);
      expect_least_error(blocks(Format::kInt4, 32, Format::kFloat32), weighted, length);
      expect_least_error(blocks(Format::kFloat4E2M1, 16, Format::kFloat8E4M3, true), weighted, length);
    }
}

TEST(Quantized, OfEqualErrorsTheFirstScaleIsTaken) {
  Encoding encoding = blocks(Format::kInt4, 4, Format::kFloat32);
  encoding.rule = BlockScale::kLeastError;
  const Tensor values = Tensor::of<float>({4}, {7, -3, 1, 0.4f});
  const ScaleLayout layout(encoding, values.shape());
  const std::vector<float> nothing_counts(4, 0.0f);
  EXPECT_EQ(quantize(encoding, layout, values, {.weights = nothing_counts}).scales.data<float>()[0], 1);
  // Of what is not finite, no error is a number.
  const Tensor odd = Tensor::of<float>({4}, {7, std::nanf(""), 1, 0.4f});
  EXPECT_EQ(quantize(encoding, layout, odd).scales.data<float>()[0], 1);
}

}  // namespace
}  // namespace ulpscope::testing
