// Reference kernels of operators that work element by element.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::ops {

inline constexpr std::int64_t kElementsPerTask = 1 << 14;

/// The type that arithmetic on elements of type T happens in: T for floats; for integers an unsigned type that no
/// promotion makes signed, so that overflow wraps around (as NumPy's does) and is never undefined.
template <typename T>
using Arithmetic = std::conditional_t<std::is_floating_point_v<T>, T,
                                      std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>>;

template <typename T>
T plus(T a, T b) noexcept {
  return static_cast<T>(static_cast<Arithmetic<T>>(a) + static_cast<Arithmetic<T>>(b));
}
template <typename T>
T minus(T a, T b) noexcept {
  return static_cast<T>(static_cast<Arithmetic<T>>(a) - static_cast<Arithmetic<T>>(b));
}
template <typename T>
T times(T a, T b) noexcept {
  return static_cast<T>(static_cast<Arithmetic<T>>(a) * static_cast<Arithmetic<T>>(b));
}
/// Integers: truncates; 0 for a division by zero, wraps around for lowest / -1.
template <typename T>
T divided(T a, T b) noexcept {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return minus(T{0}, a);
  }
  return static_cast<T>(a / b);
}

/// The larger and the smaller of two; NaN when one is NaN.
template <typename T>
T larger(T a, T b) noexcept {
  return a > b || a != a ? a : b;
}
template <typename T>
T smaller(T a, T b) noexcept {
  return a < b || a != a ? a : b;
}

/// The value truncated; the nearest that T holds when it is out of range, 0 for NaN.
template <typename T>
T to_integer(double value) noexcept {
  if (value != value) return 0;
  if (value <= static_cast<double>(std::numeric_limits<T>::lowest())) return std::numeric_limits<T>::lowest();
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

/// Calls function(offset of each input) for every element of `shape`, in row-major order, with its index.
/// The offsets are in elements; `strides` has one row per input (see broadcast_strides).
template <std::size_t N, typename Function>
void for_each_broadcast(const Shape& shape, const std::array<std::vector<std::int64_t>, N>& strides,
                        Function&& function) {
  const std::int64_t total = num_elements(shape);
  const std::int64_t inner = shape.empty() ? 1 : shape.back();
  if (total == 0) return;
  const std::size_t outer_rank = shape.empty() ? 0 : shape.size() - 1;
  parallel_for(total / inner, std::max<std::int64_t>(1, kElementsPerTask / inner),
               [&](std::int64_t begin, std::int64_t end) {
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

/// output = function(a, b) with NumPy's broadcasting. `output` may be `a` when that has the output's shape.
template <typename In, typename Out, typename Function, typename InB = In>
void map_binary(const Tensor& a, const Tensor& b, Tensor& output, Function function) {
  const In* x = a.data<In>();
  const InB* y = b.data<InB>();
  Out* out = output.data<Out>();
  const std::array strides{broadcast_strides(a.shape(), output.shape()), broadcast_strides(b.shape(), output.shape())};
  for_each_broadcast(output.shape(), strides, [&](std::int64_t i, const std::array<std::int64_t, 2>& at) {
    out[i] = static_cast<Out>(function(x[at[0]], y[at[1]]));
  });
}

/// output 0 = function(input 0), applied in the element type; `function` takes every type of the list.
template <typename Types, typename Function>
void apply_unary(KernelContext& ctx, Function function) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_unary<T, T>(ctx.input(0), ctx.output(0), function);
  });
}

/// output 0 = function(input 0, input 1) with broadcasting.
template <typename Types, typename Function>
void apply_binary(KernelContext& ctx, Function function) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_binary<T, T>(ctx.input(0), ctx.input(1), ctx.output(0), function);
  });
}

/// Kernels of operators whose `Function` is a stateless callable.
template <typename Types, typename Function>
void run_unary(KernelContext& ctx) {
  apply_unary<Types>(ctx, Function{});
}

template <typename Types, typename Function>
void run_binary(KernelContext& ctx) {
  apply_binary<Types>(ctx, Function{});
}

/// As run_binary, with a bool output.
template <typename Types, typename Function>
void run_comparison(KernelContext& ctx) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_binary<T, bool>(ctx.input(0), ctx.input(1), ctx.output(0), Function{});
  });
}

/// output 0 = function(...function(input 0, input 1)..., last input) with broadcasting.
template <typename T, typename Function>
void fold_inputs(KernelContext& ctx, Function function) {
  Tensor& out = ctx.output(0);
  if (ctx.num_inputs() == 1) return map_unary<T, T>(ctx.input(0), out, [](T x) { return x; });
  map_binary<T, T>(ctx.input(0), ctx.input(1), out, function);
  for (int i = 2; i < ctx.num_inputs(); ++i) map_binary<T, T>(out, ctx.input(i), out, function);
}

template <typename Types, typename Function>
void run_nary(KernelContext& ctx) {
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) { fold_inputs<decltype(tag)>(ctx, Function{}); });
}

/// The definition of a float operator that works element by element on one input.
inline OpDef unary_op(std::string_view name, int since_version, void (*run)(KernelContext&),
                      void (*adjoint)(AdjointContext&) = nullptr) {
  return {.name = name,
          .since_version = since_version,
          .kind = OpKind::kPointwise,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

/// The same for two inputs.
inline OpDef binary_op(std::string_view name, int since_version, void (*run)(KernelContext&),
                       void (*adjoint)(AdjointContext&) = nullptr) {
  return {.name = name,
          .since_version = since_version,
          .inputs = {2, 2},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run,
          .adjoint = adjoint};
}

/// A comparison: two inputs of any type, bool output. Floats are compared in the precision of the layer.
inline OpDef comparison_op(std::string_view name, int since_version, void (*run)(KernelContext&)) {
  return {.name = name,
          .since_version = since_version,
          .inputs = {2, 2},
          .precision = PrecisionRule::kCompute,
          .kind = OpKind::kPointwise,
          .infer = infer_comparison,
          .run = run};
}

}  // namespace ulpscope::ops
