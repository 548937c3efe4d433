// Scales from largest values, and elements of a format, against their definition element by element.
#include "formats/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

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
  const Tensor with_sign = quantized(values, {0.5f, false}, false), without = quantized(values, {0.5f, true}, true);
  EXPECT_TRUE(std::ranges::equal(with_sign.values<float>(), std::vector<float>{-128, -2, 2, 127}));
  EXPECT_TRUE(std::ranges::equal(without.values<float>(), std::vector<float>{0, 0, 1, 127.5f}));
}

}  // namespace
}  // namespace ulpscope::testing
