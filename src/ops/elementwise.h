// Reference kernels of operators that work element by element.
#pragma once

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {

inline constexpr std::int64_t kElementsPerTask = 1 << 14;

/// Calls function(offset of each input) for every element of `shape`, in row-major order, with its index.
/// The offsets are in elements; `strides` has one row per input (see broadcast_strides).
template <std::size_t N, typename Function>
void for_each_broadcast(const Shape& shape, const std::array<std::vector<std::int64_t>, N>& strides, Function&& function) {
  const std::int64_t total = num_elements(shape);
  const std::int64_t inner = shape.empty() ? 1 : shape.back();
  if (total == 0) return;
  const std::size_t outer_rank = shape.empty() ? 0 : shape.size() - 1;
  parallel_for(total / inner, std::max<std::int64_t>(1, kElementsPerTask / inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::array<std::int64_t, N> base{}, step{};
      std::int64_t rest = row;
      for (std::size_t d = outer_rank; d-- > 0;) {
        const std::int64_t index = rest % shape[d];
        rest /= shape[d];
        for (std::size_t k = 0; k < N; ++k) base[k] += index * strides[k][d];
      }
      for (std::size_t k = 0; k < N; ++k) step[k] = shape.empty() ? 0 : strides[k].back();
      for (std::int64_t i = 0; i < inner; ++i) {
        function(row * inner + i, base);
        for (std::size_t k = 0; k < N; ++k) base[k] += step[k];
      }
    }
  });
}

/// output[i] = function(input[i]); In and Out are the C++ types of the physical element types.
template <typename In, typename Out, typename Function>
void map_unary(const Tensor& input, Tensor& output, Function function) {
  const In* in = input.data<In>();
  Out* out = output.data<Out>();
  parallel_for(input.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<Out>(function(in[i]));
  });
}

/// output = function(a, b) with NumPy's broadcasting.
template <typename In, typename Out, typename Function>
void map_binary(const Tensor& a, const Tensor& b, Tensor& output, Function function) {
  const In* x = a.data<In>();
  const In* y = b.data<In>();
  Out* out = output.data<Out>();
  const std::array strides{broadcast_strides(a.shape(), output.shape()), broadcast_strides(b.shape(), output.shape())};
  for_each_broadcast(output.shape(), strides, [&](std::int64_t i, const std::array<std::int64_t, 2>& at) {
    out[i] = static_cast<Out>(function(x[at[0]], y[at[1]]));
  });
}

/// The kernel of a one-input operator: `Function` is a stateless callable, applied in the element type.
template <typename Types, typename Function>
void run_unary(KernelContext& ctx) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_unary<T, T>(ctx.input(0), ctx.output(0), Function{});
  });
}

template <typename Types, typename Function>
void run_binary(KernelContext& ctx) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_binary<T, T>(ctx.input(0), ctx.input(1), ctx.output(0), Function{});
  });
}

/// As run_binary, with a bool output.
template <typename Types, typename Function>
void run_comparison(KernelContext& ctx) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_binary<T, bool>(ctx.input(0), ctx.input(1), ctx.output(0), Function{});
  });
}

}  // namespace ulpscope::ops
