// What the ReduceX operators share.
#pragma once

#include <limits>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/rows.h"

namespace ulpscope::ops {

/// The axes that a ReduceX layer reduces, in [0, rank): the attribute, or input 1 where it is present; all of them when
/// none are given, unless noop_with_empty_axes is set.
std::vector<std::int64_t> reduced_axes(const InferContext& ctx);
std::vector<std::int64_t> reduced_axes(const KernelContext& ctx);
std::vector<std::int64_t> reduced_axes(const AdjointContext& ctx);

void infer_reduction(InferContext& ctx);

/// output 0 = function(const T* row, length) for every row; Function is stateless and templated over T.
template <typename Types, typename Function>
void run_reduction(KernelContext& ctx) {
  const Rows rows = to_rows(ctx.input(0), reduced_axes(ctx));
  with_type(Types{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = rows.tensor.data<T>();
    T* y = ctx.output(0).template data<T>();
    parallel_for(rows.count, rows_per_task(rows.length), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        y[row] = static_cast<T>(Function{}(x + row * rows.length, rows.length));
    });
  });
}

/// float32, double, and the integers that ONNX lets the sums reduce.
using SummedTypes = TypeList<float, double, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;

/// The sum of function(x[i]); integers wrap around.
template <typename T, typename Function>
T row_sum(const T* row, std::int64_t length, const Function& function) {
  using Sum = Arithmetic<T>;
  return static_cast<T>(
      pairwise_sum<Sum>(0, length, [&](std::int64_t i) { return static_cast<Sum>(function(row[i])); }));
}

/// A function of a real number on any element type; integers truncate.
template <typename T, typename Function>
T through_real(T x, const Function& function) {
  if constexpr (std::is_floating_point_v<T>)
    return function(x);
  else
    return to_integer<T>(function(static_cast<double>(x)));
}

/// The shape of the output with every reduced dimension kept.
inline Shape kept_shape(const AdjointContext& ctx) {
  Shape shape = ctx.input_shape(0);
  for (std::int64_t axis : reduced_axes(ctx)) shape[static_cast<std::size_t>(axis)] = 1;
  return shape;
}
/// The gradient of the output, and its value, with every reduced dimension kept.
inline Value kept_gradient(AdjointContext& ctx) { return reshape(gradient(ctx), kept_shape(ctx)); }
inline Value kept_output(AdjointContext& ctx) { return reshape(output(ctx), kept_shape(ctx)); }

/// ReduceMax and ReduceMin: the elements that are the result share its gradient.
inline void selection_adjoint(AdjointContext& ctx) {
  const Value chosen = 1 - abs(sign(input(ctx, 0) - kept_output(ctx)));
  ctx.set(0, (chosen * (kept_gradient(ctx) / sum(chosen, reduced_axes(ctx)))).id);
}

inline OpDef reduction_op(std::string_view name, void (*run)(KernelContext&),
                          void (*adjoint)(AdjointContext&) = nullptr) {
  return {.name = name,
          .inputs = {1, 2},
          .kind = OpKind::kReduction,
          .weights = 0b10,
          .infer = infer_reduction,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
