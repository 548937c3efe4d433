#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/product.h"
#include "backend/cpu_convolutions.h"
#include "backend/seeds.h"

namespace ulpscope::cpu {
namespace {

/// Any geometry, transposed or not.
class PatchCase : public RandomConvolution {
 public:
  explicit PatchCase(std::uint32_t seed) : RandomConvolution(seed) {
    const auto dims = static_cast<std::size_t>(pick(1, 3));
    const Index images = pick(1, 2);
    spec.groups = pick(0, 1) == 0 ? 1 : pick(2, 4);
    spec.transposed = pick(0, 2) == 0;
    const Index in = pick(1, 40), out = pick(1, 40);
    spec.input = {images, in * spec.groups};
    spec.output = {images, out * spec.groups};
    spec.kernel = spec.transposed ? Shape{in * spec.groups, out} : Shape{out * spec.groups, in};
    for (std::size_t d = 0; d < dims; ++d) {
      const Index window = pick(1, 4), dilation = pick(1, 2), stride = pick(1, 3);
      const Index reach = (window - 1) * dilation + 1, begin = pick(spec.transposed ? 0 : -1, window + 1);
      const Index end = pick(0, window + 1), few = pick(1, dims == 1 ? 60 : dims == 2 ? 9 : 5);
      const Index many = std::max<Index>(1, (few - 1) * stride + reach - begin - end + pick(0, stride - 1));
      add_dimension(spec.transposed ? few : many, spec.transposed ? many : few, window, stride, dilation, begin, end);
    }
    weights = numbers(spec.kernel);
    if (pick(0, 3) == 0) weights.data<float>()[pick(0, weights.size() - 1)] = std::numeric_limits<float>::infinity();
    spec.weights = [values = weights] { return values; };
    if (!spec.transposed) draw_extras(true);
    draw_inputs();
  }
};

TEST(PatchConvolution, IsTheSumOfItsWindows) {
  const std::uint32_t first = sweeps::seed();
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(sweeps::count(150)); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const PatchCase c(seed);
    const Tensor one = c.run(make_patch_convolution_kernel, 1), three = c.run(make_patch_convolution_kernel, 3);
    std::vector<double> magnitudes;
    const std::vector<double> expected = c.expected(magnitudes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const float result = one.data<float>()[i];
      if (std::isnan(expected[i]))
        ASSERT_TRUE(std::isnan(result)) << i << ": " << result;
      else if (std::isinf(expected[i]))
        ASSERT_EQ(static_cast<double>(result), expected[i]) << i;
      else
        ASSERT_NEAR(static_cast<double>(result), expected[i], 3e-7 * magnitudes[i]) << i;
      ASSERT_TRUE(result == three.data<float>()[i] || std::isnan(result)) << i;
    }
  }
}

TEST(PatchConvolution, LeavesBytesAndLongSteps) {
  const ObjectCache none = [](const std::string&, std::function<PreparedObject()>) { return PreparedSource(); };
  ConvolutionSpec spec{.input = {1, 1, 2, 2},
                       .output = {1, 1, 100'001, 100'001},
                       .strides = {100'000, 100'000},
                       .dilations = {1, 1},
                       .pads_begin = {0, 0},
                       .pads_end = {0, 0},
                       .transposed = true,
                       .kernel = {1, 1, 1, 1}};
  EXPECT_EQ(make_patch_convolution_kernel(spec, none), nullptr);
  spec.transposed = false;
  spec.strides = {1, 1};
  spec.output = spec.input;
  spec.type = DataType::kInt8;
  EXPECT_EQ(make_patch_convolution_kernel(spec, none), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
