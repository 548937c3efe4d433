// Convolutions of float32 on the CPU with random values, and what they are in float64.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/cpu/product.h"
#include "core/parallel.h"

namespace ulpscope::cpu {

/// `spec` and its values; those who derive from it draw them.
class RandomConvolution {
 public:
  using Index = std::int64_t;
  /// One of the makers of kernels.
  template <typename Make>
  Tensor run(const Make& make, int threads) const {
    const ScopedThreads scoped(threads);
    const ObjectCache now = [](const std::string&, std::function<PreparedObject()> prepare) {
      return PreparedSource([object = prepare().object] { return object; });
    };
    Tensor out(DataType::kFloat32, {num_elements(spec.output)});
    const Tensor* const in[] = {&x, &addend};
    Tensor* const outs[] = {&out};
    make(spec, now)->run(in, outs);
    return out;
  }

  /// In double; `magnitudes`: of what is added up.
  std::vector<double> expected(std::vector<double>& magnitudes) const {
    const auto size = static_cast<std::size_t>(num_elements(spec.output));
    std::vector<double> sums(size, 0.0);
    magnitudes.assign(size, 4.0);
    const Position few = extents(spec.transposed ? spec.input : spec.output), window = extents(spec.kernel);
    const Position strides = last_three(spec.strides, 1), dilations = last_three(spec.dilations, 1),
                   pads = last_three(spec.pads_begin, 0);
    for (Index image = 0; image < spec.input[0]; ++image)
      for (Index i = 0; i < few[0] * few[1] * few[2]; ++i)
        for (Index place = 0; place < window[0] * window[1] * window[2]; ++place) {
          const Position from = position(i, few), in_window = position(place, window);
          Position many;
          for (std::size_t d = 0; d < 3; ++d) many[d] = from[d] * strides[d] - pads[d] + in_window[d] * dilations[d];
          add_place(image, from, place, many, sums, magnitudes);
        }
    for (std::size_t o = 0; o < size; ++o) {
      if (spec.bias) sums[o] += static_cast<double>(spec.bias.data<float>()[static_cast<Index>(o) % spec.output[1]]);
      for (const PostOp& op : spec.post_ops) sums[o] = after(op, sums[o], static_cast<double>(addend.data<float>()[o]));
    }
    return sums;
  }

  ConvolutionSpec spec;
  Tensor weights, x, addend;

 protected:
  explicit RandomConvolution(std::uint32_t seed) : random_(seed) {}

  Index pick(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }
  Tensor numbers(Shape shape) {
    std::uniform_real_distribution<float> value(-1, 1);
    Tensor t(DataType::kFloat32, std::move(shape));
    for (Index i = 0; i < t.size(); ++i) t.data<float>()[i] = value(random_);
    return t;
  }
  void add_dimension(Index input, Index output, Index window, Index stride, Index dilation, Index begin, Index end) {
    spec.input.push_back(input);
    spec.output.push_back(output);
    spec.kernel.push_back(window);
    spec.strides.push_back(stride);
    spec.dilations.push_back(dilation);
    spec.pads_begin.push_back(begin);
    spec.pads_end.push_back(end);
  }
  /// And where `bounded`, Relu or Clip.
  void draw_extras(bool bounded = false) {
    if (pick(0, 1) == 0) spec.bias = numbers({spec.output[1]});
    if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kAddTensor});
    if (pick(0, 3) == 0) spec.post_ops.push_back({PostOp::Kind::kHardSwish});
    const Index bounds = bounded ? pick(0, 3) : 0;
    if (bounds == 1) spec.post_ops.push_back({PostOp::Kind::kRelu});
    if (bounds == 2) spec.post_ops.push_back({PostOp::Kind::kClip, -0.5f, 0.25f});
  }
  void draw_inputs() {
    x = numbers({num_elements(spec.input)});
    addend = numbers({num_elements(spec.output)});
  }

 private:
  using Position = std::array<Index, 3>;  ///< Of a slice, a row and a column.

  static Position last_three(const std::vector<Index>& values, Index absent) {
    Position result{absent, absent, absent};
    std::copy(values.begin(), values.end(), result.end() - static_cast<std::ptrdiff_t>(values.size()));
    return result;
  }
  static Position extents(const Shape& shape) { return last_three({shape.begin() + 2, shape.end()}, 1); }
  static Position position(Index i, const Position& in) { return {i / (in[1] * in[2]), i / in[2] % in[1], i % in[2]}; }

  static double after(const PostOp& op, double sum, double addend) {
    switch (op.kind) {
      case PostOp::Kind::kHardSwish:
        return sum * std::clamp(sum / 6 + 0.5, 0.0, 1.0);
      case PostOp::Kind::kAddTensor:
        return sum + addend;
      case PostOp::Kind::kRelu:
        return std::max(sum, 0.0);
      case PostOp::Kind::kClip:
        return std::clamp(sum, static_cast<double>(op.p), static_cast<double>(op.q));
    }
    return sum;
  }

  /// One place of the window, for all channels: `few` is an output, or an input of a transposed convolution.
  void add_place(Index image, Position few, Index place, Position many, std::vector<double>& sums,
                 std::vector<double>& magnitudes) const {
    const Position others = extents(spec.transposed ? spec.output : spec.input);
    for (std::size_t d = 0; d < 3; ++d)
      if (many[d] < 0 || many[d] >= others[d]) return;
    const Position from = spec.transposed ? few : many, to = spec.transposed ? many : few;
    const auto first = [image](const Shape& shape, Position at) {
      const Position size = extents(shape);
      return (((image * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2]) * shape[1];
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

  std::mt19937 random_;
};

}  // namespace ulpscope::cpu
