#include "ops/adjoint_linear.h"

#include <algorithm>
#include <utility>

namespace ulpscope::ops {
namespace {

std::vector<std::int64_t> joined(const Shape& a, const Shape& b) {
  std::vector<std::int64_t> result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

std::vector<std::int64_t> permutation(std::vector<std::int64_t> first, std::size_t rank) {
  for (std::size_t d = first.size(); d < rank; ++d) first.push_back(static_cast<std::int64_t>(d));
  return first;
}

/// (M, C/groups, k...) as (C, M/groups, k...), with the kernel reversed.
Value reversed_weights(Value w, std::int64_t groups) {
  const Shape shape = w.shape();
  AdjointContext& ctx = *w.ctx;
  const std::int64_t m = shape[0] / groups, c = shape[1];
  const Shape spatial(shape.begin() + 2, shape.end());
  w = reshape(w, joined({groups, m, c}, spatial));
  w = transpose(w, permutation({0, 2, 1}, shape.size() + 1));
  w = reshape(w, joined({groups * c, m}, spatial));
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < spatial.size(); ++d)
    if (spatial[d] > 1) axes.push_back(static_cast<std::int64_t>(d) + 2);
  if (axes.empty()) return w;
  const std::vector<std::int64_t> last(axes.size(), -1), before(axes.size(), std::numeric_limits<std::int64_t>::min());
  return {&ctx,
          ctx.add("Slice", {w.id, ctx.integers(last), ctx.integers(before), ctx.integers(axes), ctx.integers(last)})};
}

}  // namespace

Value convolution_input_gradient(Value gradient, Value weights, const WindowGeometry& g) {
  AdjointContext& ctx = *gradient.ctx;
  const std::size_t rank = g.rank();
  // The windows begin `front` elements into the input when pads are negative; `end` may fall short of its end.
  Shape begin(rank), end(rank), extra(rank, 0), pad_front(rank + 2, 0), pad_back(rank + 2, 0);
  bool stride_1 = ctx.shape(weights.id).size() == rank + 2, fits = true;
  Shape forward_begin(rank), forward_end(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t extent = (g.kernel[d] - 1) * g.dilations[d] + 1;
    const std::int64_t front = std::max<std::int64_t>(0, -g.pads_begin[d]);
    begin[d] = std::max<std::int64_t>(0, g.pads_begin[d]);
    const std::int64_t length = g.input[d] - front;
    end[d] = (g.output[d] - 1) * g.strides[d] + extent - begin[d] - length;
    pad_front[d + 2] = front;
    if (end[d] < 0) {
      if (-end[d] < std::max(g.strides[d], g.dilations[d]))
        extra[d] = -end[d];
      else
        pad_back[d + 2] = -end[d];
      end[d] = 0;
    }
    forward_begin[d] = extent - 1 - begin[d];
    forward_end[d] = length - g.output[d] - forward_begin[d] + extent - 1;
    stride_1 &= g.strides[d] == 1;
    fits &= forward_begin[d] >= 0 && forward_end[d] >= 0;
  }
  Value result{&ctx, kNone};
  if (stride_1 && fits) {
    // A convolution with the reversed kernel: the faster primitive of the two.
    result.id = ctx.add("Conv", {gradient.id, reversed_weights(weights, g.groups).id},
                        {{"dilations", g.dilations},
                         {"group", g.groups},
                         {"kernel_shape", g.kernel},
                         {"pads", joined(forward_begin, forward_end)},
                         {"strides", g.strides}});
    std::ranges::fill(pad_back, 0);
  } else {
    result.id = ctx.add("ConvTranspose", {gradient.id, weights.id},
                        {{"dilations", g.dilations},
                         {"group", g.groups},
                         {"kernel_shape", g.kernel},
                         {"output_padding", extra},
                         {"pads", joined(begin, end)},
                         {"strides", g.strides}});
  }
  return pad(result, pad_front, pad_back);
}

Value convolution_weight_gradient(Value input, Value gradient, const WindowGeometry& g) {
  // Samples and channels change places: w[m, c, k] = sum over n, o of gradient[n, m, o] * input[n, c, o * s + k * d -
  // p] is a convolution over o with stride d and dilation s, whose batch are the channels of a group.
  AdjointContext& ctx = *input.ctx;
  const std::size_t rank = g.rank();
  const std::int64_t n = g.batch, groups = g.groups, c = g.in_channels / groups, m = g.out_channels;
  std::vector<std::int64_t> front(rank + 2, 0), back(rank + 2, 0);
  for (std::size_t d = 0; d < rank; ++d) {
    // Exactly the elements that some window reads.
    const std::int64_t extent = (g.kernel[d] - 1) * g.dilations[d] + 1;
    front[d + 2] = g.pads_begin[d];
    back[d + 2] = (g.output[d] - 1) * g.strides[d] + extent - g.pads_begin[d] - g.input[d];
  }
  Value x = pad(input, front, back);
  const Shape padded(x.shape().begin() + 2, x.shape().end());
  x = reshape(x, joined({n, groups, c}, padded));
  x = transpose(x, permutation({2, 1, 0}, rank + 3));
  x = reshape(x, joined({c, groups * n}, padded));
  const Value kernel = transpose(gradient, permutation({1, 0}, rank + 2));
  const Value w{&ctx, ctx.add("Conv", {x.id, kernel.id},
                              {{"dilations", g.strides},
                               {"group", groups},
                               {"kernel_shape", g.output},
                               {"pads", Shape(2 * rank, 0)},
                               {"strides", g.dilations}})};
  return reshape(transpose(w, permutation({1, 0}, rank + 2)), joined({m, c}, g.kernel));
}

Value window_sums_adjoint(Value gradient, const WindowGeometry& g, double factor) {
  WindowGeometry depthwise = g;
  depthwise.out_channels = depthwise.groups = g.in_channels;
  Tensor weights(DataType::kFloat64, joined({g.in_channels, 1}, g.kernel));
  std::fill_n(weights.data<double>(), weights.size(), factor);
  return convolution_input_gradient(gradient, {gradient.ctx, gradient.ctx->constant(weights)}, depthwise);
}

Value transposed_along_axis(Value x, std::vector<SumTerm> terms, std::int64_t inputs, std::int64_t axis) {
  AdjointContext& ctx = *x.ctx;
  const auto at = static_cast<std::size_t>(axis);
  Shape shape = x.shape();
  std::ranges::sort(terms, {}, [](const SumTerm& t) { return std::pair(t.from, t.to); });
  std::erase_if(terms, [](const SumTerm& t) { return t.weight == 0; });
  shape[at] = inputs;
  if (terms.empty()) return zeros(ctx, shape);
  // The elements that are read, from the first to the last of them, with as many terms each as the most has.
  const std::int64_t first = terms.front().from, count = terms.back().from - first + 1;
  std::vector<std::int64_t> known(static_cast<std::size_t>(count), 0);
  for (const SumTerm& t : terms) ++known[static_cast<std::size_t>(t.from - first)];
  const std::int64_t most = *std::ranges::max_element(known);
  Tensor places(DataType::kInt64, {count * most}), weights(DataType::kFloat64, {count, most, 1});
  std::fill_n(weights.data<double>(), weights.size(), 0.0);
  std::int64_t* place = places.data<std::int64_t>();
  std::size_t next = 0;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < most; ++k) {
      const bool is_term = k < known[static_cast<std::size_t>(i)];
      if (is_term) weights.data<double>()[i * most + k] = terms[next].weight;
      // What weighs nothing is a neighbor, so that values that are not finite reach no further than they do.
      place[i * most + k] = terms[std::min(next, terms.size() - 1)].to;
      if (is_term) ++next;
    }
  const std::int64_t outer = product(shape, 0, at), inner = product(shape, at + 1, shape.size());
  const Value flat = reshape(x, {outer, x.shape()[at], inner});
  Value parts{&ctx, ctx.add("Gather", {flat.id, ctx.constant(places)}, {{"axis", std::int64_t{1}}})};
  parts = reshape(parts, {outer, count, most, inner}) * Value{&ctx, ctx.constant(weights)};
  const Value sums = reshape(most == 1 ? parts : sum(parts, {2}), {outer, count, inner});
  return reshape(pad(sums, {0, first, 0}, {0, inputs - first - count, 0}), shape);
}

Value scatter_flat(Value gradient, Value indices, const Shape& shape) {
  AdjointContext& ctx = *gradient.ctx;
  const std::int64_t count = num_elements(shape), given = num_elements(gradient.shape());
  return reshape(scatter_add(reshape(gradient, {given}), ctx.reshape(indices.id, {given}), {count}, 0), shape);
}

}  // namespace ulpscope::ops
