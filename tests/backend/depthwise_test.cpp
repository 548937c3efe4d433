#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/product.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu_convolutions.h"
#include "backend/seeds.h"

namespace ulpscope::cpu {
namespace {

/// Windows of each channel by itself, or of groups of 2, 4 and 8 channels.
class DepthwiseCase : public RandomConvolution {
 public:
  explicit DepthwiseCase(std::uint32_t seed) : RandomConvolution(seed) {
    const std::size_t dims = pick(0, 2) == 0 ? 1 : 2;
    const Index n = pick(1, 2), c = pick(0, 3) == 0 ? pick(1, 70) : 8 * pick(1, 9);
    const Index depth = pick(0, 2) == 0 ? Index{2} << pick(0, 2) : 1;
    const bool of_groups = depth > 1 && c % depth == 0 && c > depth && depth <= program_kernels().product.lanes;
    const Index outputs = !of_groups && c > 1 && pick(0, 2) == 0 ? pick(2, 3) * c : c;
    spec.groups = of_groups ? c / depth : c;
    spec.input = {n, c};
    spec.output = {n, outputs};
    spec.kernel = {outputs, of_groups ? depth : 1};
    for (std::size_t d = 0; d < dims; ++d) {
      const Index window = pick(1, 7), dilation = pick(0, 1) == 0 ? 1 : pick(2, 9), stride = pick(1, 3);
      const Index begin = pick(0, window * dilation + 2), end = pick(0, window * dilation + 2);
      const Index reach = (window - 1) * dilation + 1;
      const Index size = std::max<Index>(pick(1, dims == 1 ? 300 : 20), reach - begin - end);
      add_dimension(size, (size + begin + end - reach) / stride + 1, window, stride, dilation, begin, end);
    }
    weights = numbers(spec.kernel);
    spec.weights = [values = weights] { return values; };
    draw_extras(true);
    draw_inputs();
  }
};

TEST(Depthwise, SumsTheWindowOfEachChannel) {
  const std::uint32_t first = sweeps::seed();
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(sweeps::count(120)); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const DepthwiseCase c(seed);
    const Tensor one = c.run(make_depthwise_kernel, 1), two = c.run(make_depthwise_kernel, 2);
    std::vector<double> magnitudes;
    const std::vector<double> expected = c.expected(magnitudes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(one.data<float>()[i]), expected[i], 3e-7 * magnitudes[i]) << i;
      ASSERT_EQ(one.data<float>()[i], two.data<float>()[i]) << i;
    }
  }
}

TEST(Depthwise, LeavesOtherConvolutions) {
  const ObjectCache none = [](const std::string&, std::function<PreparedObject()>) { return PreparedSource(); };
  ConvolutionSpec spec{.input = {1, 8, 5, 5},
                       .output = {1, 16, 5, 5},
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads_begin = {1, 1},
                       .pads_end = {1, 1},
                       .groups = 2,
                       .kernel = {16, 4, 3, 3}};
  EXPECT_EQ(make_depthwise_kernel(spec, none), nullptr) << "outputs are more than inputs";
  spec.output[1] = spec.kernel[0] = 8;
  spec.groups = 1;
  spec.kernel[1] = 8;
  EXPECT_EQ(make_depthwise_kernel(spec, none), nullptr) << "no groups";
  spec.groups = spec.input[1] = spec.kernel[1] = 1;  // One image for all.
  EXPECT_EQ(make_depthwise_kernel(spec, none), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
