#include "backend/cpu/patch_convolution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/seeds.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

std::unique_ptr<Kernel> made(const ConvolutionSpec& spec) {
  return make_patch_convolution_kernel(spec, [](const std::string&, std::function<PreparedObject()> make) {
    return PreparedSource([object = make().object] { return object; });
  });
}

/// Any geometry, transposed or not.
class RandomConvolution {
 public:
  explicit RandomConvolution(std::uint32_t seed) : random_(seed) {
    const std::size_t dims = pick(0, 3) == 0 ? 1 : 2;
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
      const Index end = pick(0, window + 1), few = pick(1, dims == 1 ? 60 : 9);
      const Index many = std::max<Index>(1, (few - 1) * stride + reach - begin - end + pick(0, stride - 1));
      spec.input.push_back(spec.transposed ? few : many);
      spec.output.push_back(spec.transposed ? many : few);
      spec.kernel.push_back(window);
      spec.strides.push_back(stride);
      spec.dilations.push_back(dilation);
      spec.pads_begin.push_back(begin);
      spec.pads_end.push_back(end);
    }
    weights = numbers(spec.kernel);
    if (pick(0, 3) == 0) weights.data<float>()[pick(0, weights.size() - 1)] = std::numeric_limits<float>::infinity();
    spec.weights = [values = weights] { return values; };
    if (!spec.transposed) {
      if (pick(0, 1) == 0) spec.bias = numbers({spec.output[1]});
      if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kAddTensor});
      if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kHardSwish});
    }
    x = numbers({num_elements(spec.input)});
    addend = numbers({num_elements(spec.output)});
  }

  Tensor run(int threads) const {
    const ScopedThreads scoped(threads);
    Tensor out(DataType::kFloat32, {num_elements(spec.output)});
    const Tensor* const in[] = {&x, &addend};
    Tensor* const outs[] = {&out};
    made(spec)->run(in, outs);
    return out;
  }

  /// In double; `magnitudes`: of what is added up.
  std::vector<double> expected(std::vector<double>& magnitudes) const {
    const auto size = static_cast<std::size_t>(num_elements(spec.output));
    std::vector<double> sums(size, 0.0);
    magnitudes.assign(size, 4.0);
    const Shape& few = spec.transposed ? spec.input : spec.output;
    const auto row = [&](const std::vector<Index>& all, Index absent) { return all.size() < 2 ? absent : all[0]; };
    const Index rows = few.size() < 4 ? 1 : few[2], window_rows = spec.kernel.size() < 4 ? 1 : spec.kernel[2];
    for (Index image = 0; image < few[0]; ++image)
      for (Index y = 0; y < rows; ++y)
        for (Index z = 0; z < few.back(); ++z)
          for (Index i = 0; i < window_rows; ++i)
            for (Index j = 0; j < spec.kernel.back(); ++j)
              add_place(image, {y, z}, i * spec.kernel.back() + j,
                        {y * row(spec.strides, 1) - row(spec.pads_begin, 0) + i * row(spec.dilations, 1),
                         z * spec.strides.back() - spec.pads_begin.back() + j * spec.dilations.back()},
                        sums, magnitudes);
    for (std::size_t o = 0; o < size; ++o) {
      if (spec.bias) sums[o] += static_cast<double>(spec.bias.data<float>()[static_cast<Index>(o) % spec.output[1]]);
      for (const PostOp& op : spec.post_ops)
        sums[o] = op.kind == PostOp::Kind::kAddTensor ? sums[o] + static_cast<double>(addend.data<float>()[o])
                                                      : sums[o] * std::clamp(sums[o] / 6 + 0.5, 0.0, 1.0);
    }
    return sums;
  }

  ConvolutionSpec spec;
  Tensor weights, x, addend;

 private:
  struct Position {
    Index y, x;
  };

  /// One place of the window, for all channels: `few` is an output, or an input of a transposed convolution.
  void add_place(Index image, Position few, Index place, Position many, std::vector<double>& sums,
                 std::vector<double>& magnitudes) const {
    const Shape& others = spec.transposed ? spec.output : spec.input;
    if (many.y < 0 || many.y >= (others.size() < 4 ? 1 : others[2]) || many.x < 0 || many.x >= others.back()) return;
    const Position from = spec.transposed ? few : many, to = spec.transposed ? many : few;
    const auto first = [image](const Shape& shape, Position at) {
      return ((image * (shape.size() < 4 ? 1 : shape[2]) + at.y) * shape.back() + at.x) * shape[1];
    };
    const Index in = spec.input[1] / spec.groups, out = spec.output[1] / spec.groups;
    const Index window = num_elements(spec.kernel) / spec.kernel[0] / spec.kernel[1];
    for (Index c = 0; c < spec.input[1]; ++c)
      for (Index o = 0; o < out; ++o) {
        const Index group = c / in, output = group * out + o;
        const Index weight = spec.transposed ? c * out + o : output * in + c % in;
        const double product = static_cast<double>(x.data<float>()[first(spec.input, from) + c]) *
                               static_cast<double>(weights.data<float>()[weight * window + place]);
        sums[static_cast<std::size_t>(first(spec.output, to) + output)] += product;
        magnitudes[static_cast<std::size_t>(first(spec.output, to) + output)] += std::fabs(product);
      }
  }

  Index pick(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  Tensor numbers(Shape shape) {
    std::uniform_real_distribution<float> value(-1, 1);
    Tensor t(DataType::kFloat32, std::move(shape));
    for (Index i = 0; i < t.size(); ++i) t.data<float>()[i] = value(random_);
    return t;
  }

  std::mt19937 random_;
};

TEST(PatchConvolution, IsTheSumOfItsWindows) {
  const std::uint32_t first = sweeps::seed();
  for (std::uint32_t seed = first; seed < first + static_cast<std::uint32_t>(sweeps::count(150)); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomConvolution c(seed);
    const Tensor one = c.run(1), three = c.run(3);
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
  ConvolutionSpec spec{.input = {1, 1, 2, 2},
                       .output = {1, 1, 100'001, 100'001},
                       .strides = {100'000, 100'000},
                       .dilations = {1, 1},
                       .pads_begin = {0, 0},
                       .pads_end = {0, 0},
                       .transposed = true,
                       .kernel = {1, 1, 1, 1}};
  EXPECT_EQ(made(spec), nullptr);
  spec.transposed = false;
  spec.strides = {1, 1};
  spec.output = spec.input;
  spec.type = DataType::kInt8;
  EXPECT_EQ(made(spec), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
