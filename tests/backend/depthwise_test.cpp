#include "backend/cpu/depthwise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/seeds.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

class Case {
 public:
  explicit Case(std::uint32_t seed) : random_(seed) {
    const std::size_t dims = pick(0, 2) == 0 ? 1 : 2;
    const std::int64_t n = pick(1, 2), c = pick(0, 3) == 0 ? pick(1, 70) : 8 * pick(1, 9);
    spec.groups = c;
    spec.input = {n, c};
    spec.output = {n, c};
    spec.kernel = {c, 1};
    for (std::size_t d = 0; d < dims; ++d) {
      const std::int64_t window = pick(1, 7), dilation = pick(0, 1) == 0 ? 1 : pick(2, 9), stride = pick(1, 3);
      const std::int64_t begin = pick(0, window * dilation + 2), end = pick(0, window * dilation + 2);
      const std::int64_t reach = (window - 1) * dilation + 1;
      const std::int64_t size = std::max<std::int64_t>(pick(1, dims == 1 ? 300 : 20), reach - begin - end);
      spec.input.push_back(size);
      spec.output.push_back((size + begin + end - reach) / stride + 1);
      spec.kernel.push_back(window);
      spec.strides.push_back(stride);
      spec.dilations.push_back(dilation);
      spec.pads_begin.push_back(begin);
      spec.pads_end.push_back(end);
    }
    weights = numbers(spec.kernel);
    spec.weights = [values = weights] { return values; };
    if (pick(0, 1) == 0) spec.bias = numbers({c});
    if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kAddTensor});
    if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kHardSwish});
    x = numbers({num_elements(spec.input)});
    addend = numbers({num_elements(spec.output)});
  }

  Tensor run(int threads) const {
    const ScopedThreads scoped(threads);
    const ObjectCache now = [](const std::string&, std::function<PreparedObject()> make) {
      return [object = make().object] { return object; };
    };
    Tensor out(DataType::kFloat32, {num_elements(spec.output)});
    const Tensor* const in[] = {&x, &addend};
    Tensor* const outs[] = {&out};
    make_depthwise_kernel(spec, now)->run(in, outs);
    return out;
  }

  /// Element by element, in double. `magnitude`: what rounding errors are in proportion to.
  double expected(std::int64_t element, double& magnitude) const {
    const std::int64_t channels = spec.output[1], c = element % channels;
    const bool flat = spec.output.size() == 3;
    const std::int64_t height = flat ? 1 : spec.output[2], width = spec.output.back();
    const std::int64_t in_height = flat ? 1 : spec.input[2], in_width = spec.input.back();
    const std::int64_t column = element / channels % width, row = element / channels / width % height;
    const std::int64_t image = element / channels / width / height;
    const std::int64_t rows = flat ? 1 : spec.kernel[2], columns = spec.kernel.back();
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t y = flat ? 0 : row * spec.strides[0] - spec.pads_begin[0] + i * spec.dilations[0];
        const std::int64_t z = column * spec.strides.back() - spec.pads_begin.back() + j * spec.dilations.back();
        if (y < 0 || y >= in_height || z < 0 || z >= in_width) continue;
        const double product =
            static_cast<double>(x.data<float>()[((image * in_height + y) * in_width + z) * channels + c]) *
            static_cast<double>(weights.data<float>()[(c * rows + i) * columns + j]);
        sum += product;
        magnitude += std::fabs(product);
      }
    if (spec.bias) sum += static_cast<double>(spec.bias.data<float>()[c]);
    for (const PostOp& op : spec.post_ops)
      sum = op.kind == PostOp::Kind::kAddTensor ? sum + static_cast<double>(addend.data<float>()[element])
                                                : sum * std::clamp(sum / 6 + 0.5, 0.0, 1.0);
    return sum;
  }

  ConvolutionSpec spec;
  Tensor weights, x, addend;

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Tensor numbers(Shape shape) {
    std::uniform_real_distribution<float> value(-1, 1);
    Tensor t(DataType::kFloat32, std::move(shape));
    for (std::int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = value(random_);
    return t;
  }

  std::mt19937 random_;
};

TEST(Depthwise, SumsTheWindowOfEachChannel) {
  const std::uint32_t first = sweeps::seed();
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(sweeps::count(120)); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Case c(seed);
    const Tensor one = c.run(1), two = c.run(2);
    for (std::int64_t i = 0; i < one.size(); ++i) {
      double magnitude = 4;
      const double expected = c.expected(i, magnitude);
      ASSERT_NEAR(static_cast<double>(one.data<float>()[i]), expected, 3e-7 * magnitude) << i;
      ASSERT_EQ(one.data<float>()[i], two.data<float>()[i]) << i;
    }
  }
}

TEST(Depthwise, LeavesOtherConvolutions) {
  const ObjectCache none = [](const std::string&, std::function<PreparedObject()>) { return PreparedSource(); };
  ConvolutionSpec spec{.input = {1, 8, 5, 5},
                       .output = {1, 8, 5, 5},
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads_begin = {1, 1},
                       .pads_end = {1, 1},
                       .groups = 4,
                       .kernel = {8, 2, 3, 3}};
  EXPECT_EQ(make_depthwise_kernel(spec, none), nullptr);
  spec.groups = 8;
  spec.output[1] = 16;  // Two for each input channel.
  EXPECT_EQ(make_depthwise_kernel(spec, none), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
