#include "formats/encoding.h"

#include <gtest/gtest.h>

namespace ulpscope {
namespace {

TEST(Encoding, EveryElementHasTheScaleOfItsPart) {
  const Shape shape{2, 5, 3};
  for (const Granularity granularity : {Granularity::kTensor, Granularity::kChannel, Granularity::kBlock})
    for (int axis = 0; axis < 3; ++axis) {
      const Encoding encoding{.granularity = granularity, .axis = axis, .block = 2};
      const ScaleLayout layout(encoding, shape);
      std::int64_t element = 0;
      for (std::int64_t i = 0; i < 2; ++i)
        for (std::int64_t j = 0; j < 5; ++j)
          for (std::int64_t k = 0; k < 3; ++k, ++element) {
            std::int64_t at[] = {i, j, k}, expected = 0;
            if (granularity == Granularity::kChannel) expected = at[axis];
            if (granularity == Granularity::kBlock) {
              at[axis] /= 2;
              expected = (at[0] * layout.scales[1] + at[1]) * layout.scales[2] + at[2];
            }
            EXPECT_EQ(layout.index(element), expected) << to_string(encoding) << " " << element;
          }
    }
  EXPECT_EQ(ScaleLayout({.granularity = Granularity::kBlock, .axis = 1, .block = 2}, shape).scales, (Shape{2, 3, 3}));
}

TEST(Encoding, Text) {
  const Encoding nvfp4{Format::kFloat4E2M1, Granularity::kBlock, 1, 16, Format::kFloat8E4M3, true};
  EXPECT_EQ(to_string(nvfp4), "fp4 e2m1 * (fp8 e4m3fn * fp32) per block of 16 of axis 1");
  EXPECT_EQ(to_string({Format::kInt8, Granularity::kChannel, -1}), "int8 * fp32 per channel");
  EXPECT_EQ(to_string({Format::kInt8, Granularity::kTensor}), "int8 * fp32 per tensor");
  EXPECT_EQ(to_string({Format::kBFloat16}), "bf16");
}

}  // namespace
}  // namespace ulpscope
