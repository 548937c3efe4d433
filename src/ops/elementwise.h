// Reference kernels of operators that work element by element.
#pragma once

#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
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

/// A broadcast as rows: dimensions that all inputs walk through without a gap are one. Everything counts elements.
struct BroadcastRows {
  /// `strides`: per input, as broadcast_strides has them.
  BroadcastRows(const Shape& to, std::vector<std::vector<std::int64_t>> strides_of_inputs);

  /// Calls row(first, at) for every row, in parallel: `first` is the index of its first element in the result, at[k]
  /// that in input k.
  void for_each(const std::function<void(std::int64_t first, const std::int64_t* at)>& row) const;

  Shape shape;                                     ///< Not empty; the last dimension is a row.
  std::vector<std::vector<std::int64_t>> strides;  ///< Per input, as long as `shape`.
  std::int64_t count() const { return shape.back(); }
  std::int64_t step(std::size_t input) const { return strides[input].back(); }
};

/// The inner loop of a function of one or two operands: out[i] = function(a[i], b[i * b_step]). All that depends on the
/// element type; what it reads and writes is dense, but for steps of 0.
using UnaryLoop = void (*)(const void* a, void* out, std::int64_t count, Coefficients c);
using BinaryLoop = void (*)(const void* a, std::int64_t a_step, const void* b, std::int64_t b_step, void* out,
                            std::int64_t count, Coefficients c);

/// output = loop(input), in parallel. `output` may be `input`.
void map_unary(const Tensor& input, Tensor& output, UnaryLoop loop, Coefficients c = {});
/// output = loop(a, b) with NumPy's broadcasting, in parallel. `output` may be `a` when that has the output's shape.
void map_binary(const Tensor& a, const Tensor& b, Tensor& output, BinaryLoop loop, Coefficients c = {});

/// function(operands), function(operands, p) or function(operands, p, q): what it takes. Booleans where it says so,
/// else the type of the first operand.
template <typename Function, typename T, typename... Ts>
auto call_pointwise([[maybe_unused]] Coefficients c, T a, Ts... b) {
  const auto call = [&] {
    if constexpr (std::is_invocable_v<Function, T, Ts...>)
      return Function{}(a, b...);
    else if constexpr (std::is_invocable_v<Function, T, Ts..., float>)
      return Function{}(a, b..., c.p);
    else
      return Function{}(a, b..., c.p, c.q);
  };
  using Result = decltype(call());
  return static_cast<std::conditional_t<std::is_same_v<Result, bool>, bool, T>>(call());
}

template <typename T, typename Function>
void unary_loop(const void* a, void* out, std::int64_t count, Coefficients c) {
  const T* x = static_cast<const T*>(a);
  auto* y = static_cast<decltype(call_pointwise<Function>(c, T{}))*>(out);
  for (std::int64_t i = 0; i < count; ++i) y[i] = call_pointwise<Function>(c, x[i]);
}

template <typename A, typename B, typename Function>
void binary_loop(const void* a, std::int64_t a_step, const void* b, std::int64_t b_step, void* out, std::int64_t count,
                 Coefficients c) {
  const A* x = static_cast<const A*>(a);
  const B* y = static_cast<const B*>(b);
  auto* z = static_cast<decltype(call_pointwise<Function>(c, A{}, B{}))*>(out);
  const auto map = [=](auto at_a, auto at_b) {
    for (std::int64_t i = 0; i < count; ++i) z[i] = call_pointwise<Function>(c, at_a(i), at_b(i));
  };
  const auto all_of_a = [x](std::int64_t i) { return x[i]; };
  const auto all_of_b = [y](std::int64_t i) { return y[i]; };
  if (count == 0) return;
  // Rows whose operands both stand still have one element.
  if (b_step == 0) return map(all_of_a, [v = *y](std::int64_t) { return v; });
  if (a_step == 0) return map([v = *x](std::int64_t) { return v; }, all_of_b);
  map(all_of_a, all_of_b);
}

/// The kernels of tables: output 0 = loop(input 0); loop(input 0, input 1); loop(...loop(input 0, input 1)..., last
/// input), a copy of the only input. With broadcasting and the coefficients of the layer. Fail when the types of inputs
/// differ.
void run_unary(KernelContext& ctx, UnaryLoop loop);
void run_binary(KernelContext& ctx, BinaryLoop loop);
void run_nary(KernelContext& ctx, BinaryLoop loop);

/// The loop for elements of this type; fails when `Types` has it not.
template <typename Types, typename Function>
UnaryLoop find_unary_loop(const KernelContext& ctx, DataType type) {
  UnaryLoop loop = nullptr;
  with_type(Types{}, ctx, type, [&](auto tag) { loop = unary_loop<decltype(tag), Function>; });
  return loop;
}
template <typename Types, typename Function>
BinaryLoop find_binary_loop(const KernelContext& ctx, DataType type) {
  BinaryLoop loop = nullptr;
  with_type(Types{}, ctx, type, [&](auto tag) { loop = binary_loop<decltype(tag), decltype(tag), Function>; });
  return loop;
}
/// The same for the type of input 0.
template <typename Types, typename Function>
UnaryLoop find_unary_loop(const KernelContext& ctx) {
  return find_unary_loop<Types, Function>(ctx, ctx.input(0).type());
}
template <typename Types, typename Function>
BinaryLoop find_binary_loop(const KernelContext& ctx) {
  return find_binary_loop<Types, Function>(ctx, ctx.input(0).type());
}

/// A row of the tables in ops/pointwise: `op` has the name, the first version and the traits, the rest says what is
/// computed. `Function` and `Derivative` are lambdas without captures: y = f(x), f(x, p) or f(x, p, q) in the element
/// type, and dy/dx as a formula of Pointwise (none: null).
template <typename Types, typename Function, typename Derivative = std::nullptr_t>
OpDef unary(OpDef op, Function, Derivative = nullptr) {
  op.types = {set_of(Types{})};
  op.kind = OpKind::kPointwise;
  if (op.infer == nullptr) op.infer = infer_same_as_first;
  op.run = [](KernelContext& ctx) { run_unary(ctx, find_unary_loop<Types, Function>(ctx)); };
  if constexpr (!std::is_same_v<Derivative, std::nullptr_t>) op.adjoint = pointwise_adjoint<Derivative{}>;
  return op;
}

/// A row whose adjoint is no derivative times the gradient.
inline OpDef with_adjoint(OpDef op, void (*adjoint)(AdjointContext&)) {
  op.adjoint = adjoint;
  return op;
}

/// The same for two operands with broadcasting, z = f(a, b). The result has the type of the operands, or is boolean
/// when `Function` returns bool.
template <typename Types, typename Function>
OpDef binary(OpDef op, Function, void (*adjoint)(AdjointContext&) = nullptr) {
  using First = typename Types::First;
  constexpr bool boolean = std::is_same_v<decltype(call_pointwise<Function>({}, First{}, First{})), bool>;
  op.types = {set_of(Types{})};
  op.inputs = {2, 2};
  op.kind = OpKind::kPointwise;
  if (op.infer == nullptr) op.infer = boolean ? infer_comparison : infer_broadcast;
  op.run = [](KernelContext& ctx) { run_binary(ctx, find_binary_loop<Types, Function>(ctx)); };
  op.adjoint = adjoint;
  return op;
}

/// The same for any number of operands, f(...f(a, b)..., z).
template <typename Types, typename Function>
OpDef nary(OpDef op, Function, void (*adjoint)(AdjointContext&)) {
  op.types = {set_of(Types{})};
  op.inputs = {1, kAnyNumber};
  op.kind = OpKind::kPointwise;
  op.infer = infer_broadcast;
  op.run = [](KernelContext& ctx) { run_nary(ctx, find_binary_loop<Types, Function>(ctx)); };
  op.adjoint = adjoint;
  return op;
}

}  // namespace ulpscope::ops
