// ReduceX: one number for each row over some axes; sums are pairwise, integers wrap around.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/division.h"
#include "core/vector_clones.h"
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/rows.h"

namespace ulpscope::ops {
namespace {

/// The axes that a ReduceX layer reduces, in [0, rank): the attribute, or input 1 where it is present; all of them when
/// none are given, unless noop_with_empty_axes is set.
template <typename Context>
std::vector<std::int64_t> reduced_axes(const Context& ctx) {
  const auto rank = static_cast<std::int64_t>(shape_of(ctx, 0).size());
  std::vector<std::int64_t> axes = attribute_or_input(ctx, "axes", 1).value_or(std::vector<std::int64_t>{});
  if (axes.empty()) return axes_from(ctx.attributes().integer("noop_with_empty_axes", 0) != 0 ? rank : 0, rank);
  return normalize_axes(ctx, std::move(axes), rank);
}

std::optional<std::vector<std::int64_t>> axes_of_reduction(const Layer& layer, std::int64_t rank, const Tensor* given) {
  std::vector<std::int64_t> axes = layer.attributes.ints("axes");
  if (layer.inputs.size() > 1 && layer.inputs[1] != kNone) {
    if (given == nullptr || !is_integer(given->type())) return std::nullopt;
    const Tensor wide = given->cast(DataType::kInt64);
    axes.assign(wide.values<std::int64_t>().begin(), wide.values<std::int64_t>().end());
  }
  if (axes.empty()) return axes_from(layer.attributes.integer("noop_with_empty_axes", 0) != 0 ? rank : 0, rank);
  return sorted_axes(std::move(axes), rank);
}

void infer_reduction(InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  std::vector<bool> reduced(shape.size(), false);
  for (std::int64_t axis : reduced_axes(ctx)) reduced[static_cast<std::size_t>(axis)] = true;
  const bool keep = ctx.attributes().integer("keepdims", 1) != 0;
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d])
      result.push_back(shape[d]);
    else if (keep)
      result.push_back(1);
  }
  ctx.set_shape(0, std::move(result));
}

/// out[row] = function of each of `count` rows.
using RowsLoop = void (*)(const void* in, void* out, std::int64_t count, std::int64_t length);

template <typename T, typename Function>
void rows_loop(const void* in, void* out, std::int64_t count, std::int64_t length) {
  for (std::int64_t row = 0; row < count; ++row)
    static_cast<T*>(out)[row] = static_cast<T>(Function{}(static_cast<const T*>(in) + row * length, length));
}

void run_rows(KernelContext& ctx, RowsLoop loop) {
  const Rows rows = to_rows(ctx.input(0), reduced_axes(ctx));
  Tensor& out = ctx.output(0);
  parallel_for(rows.count, rows_per_task(rows.length), [&](std::int64_t begin, std::int64_t end) {
    loop(element(rows.tensor, begin * rows.length), element(out, begin), end - begin, rows.length);
  });
}

/// Rows side by side: their elements lie a stride apart.
struct Columns {
  static constexpr std::int64_t kMost = 256;
  const float* first;
  std::int64_t stride, width;  ///< `width`: how many rows, at most kMost.
};

/// A function of rows that takes Columns, too.
template <typename Function>
struct AlsoByColumns : Function {
  static constexpr bool kByColumns = true;
};

/// Reduces neighboring axes where they lie if there are elements behind them to take side by side: the bits of run_rows
/// without its copy. False: the axes are others.
template <typename Function>
bool run_columns(KernelContext& ctx) {
  const Shape& shape = ctx.input(0).shape();
  std::vector<bool> reduced(shape.size(), false);
  for (const std::int64_t axis : reduced_axes(ctx)) reduced[static_cast<std::size_t>(axis)] = true;
  std::int64_t outer = 1, length = 1, inner = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (reduced[d] && inner > 1) return false;
    (reduced[d] ? length : length > 1 ? inner : outer) *= shape[d];
  }
  constexpr std::int64_t kLeast = 16;
  if (inner < kLeast || length < 1) return false;
  const float* in = ctx.input(0).data<float>();
  float* out = ctx.output(0).data<float>();
  const std::int64_t blocks = divided_up(inner, Columns::kMost), width = divided_up(inner, blocks);
  parallel_for(outer * blocks, rows_per_task(length * width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t o = i / blocks, at = i % blocks * width;
      const Columns columns{in + o * length * inner + at, inner, std::min(width, inner - at)};
      if (columns.width > 0) Function{}(columns, length, out + o * inner + at);
    }
  });
  return true;
}

/// A row of the table: f(const T* row, length) for every row, T being the element type.
template <typename Types = WideTypes, typename Function>
OpDef reduction(OpDef op, Function, void (*adjoint)(AdjointContext&)) {
  op.inputs = {1, 2};
  op.types = {set_of(Types{}), kIndices};
  op.kind = OpKind::kReduction;
  op.weights = 0b10;
  op.parameters = 0b10;
  op.infer = infer_reduction;
  op.run = [](KernelContext& ctx) {
    with_type(Types{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
      if constexpr (std::is_same_v<T, float> && requires { Function::kByColumns; })
        if (run_columns<Function>(ctx)) return;
      run_rows(ctx, rows_loop<T, Function>);
    });
  };
  op.adjoint = adjoint;
  op.axes = axes_of_reduction;
  return op;
}

template <bool smallest, typename T>
T pick(T a, T b) {
  return smallest ? smaller(a, b) : larger(a, b);
}

template <bool smallest>
ULPSCOPE_VECTOR_CLONES void pick_columns(const float* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = pick<smallest>(out[i], in[i]);
}

/// The largest, or smallest, of elements.
template <bool smallest>
struct ExtremeOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    using Limits = std::numeric_limits<T>;
    T result = smallest ? Limits::max() : Limits::lowest();
    if constexpr (Limits::has_infinity) result = smallest ? Limits::infinity() : -Limits::infinity();
    for (std::int64_t i = 0; i < length; ++i) result = pick<smallest>(result, row[i]);
    return result;
  }
  void operator()(const Columns& columns, std::int64_t length, float* out) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::fill_n(out, columns.width, smallest ? kInfinity : -kInfinity);
    for (std::int64_t i = 0; i < length; ++i)
      pick_columns<smallest>(columns.first + i * columns.stride, columns.width, out);
  }
};

/// The sum of function(x[i]).
template <typename T, typename Function>
T row_sum(const T* row, std::int64_t length, const Function& function) {
  if constexpr (std::is_floating_point_v<T>) {
    return pairwise_sum<T>(0, length, [&](std::int64_t i) { return function(row[i]); });
  } else {
    T sum{};
    for (std::int64_t i = 0; i < length; ++i) sum = plus(sum, function(row[i]));
    return sum;
  }
}
template <typename T>
T row_sum(const T* row, std::int64_t length) {
  return row_sum(row, length, [](T x) { return x; });
}
/// pairwise_sum() of at most 128 elements of each row.
ULPSCOPE_VECTOR_CLONES void add_columns(const float* in, std::int64_t stride, std::int64_t length, std::int64_t width,
                                        float* __restrict out) {
  float sums[8][Columns::kMost], rest[Columns::kMost];
  for (int k = 0; k < 8; ++k) std::fill_n(sums[k], width, 0.0F);
  std::fill_n(rest, width, 0.0F);
  std::int64_t i = 0;
  for (; i + 8 <= length; i += 8)
    for (int k = 0; k < 8; ++k) {
      const float* const row = in + (i + k) * stride;
      for (std::int64_t c = 0; c < width; ++c) sums[k][c] += row[c];
    }
  for (; i < length; ++i)
    for (std::int64_t c = 0; c < width; ++c) rest[c] += in[i * stride + c];
  for (std::int64_t c = 0; c < width; ++c)
    out[c] = ((sums[0][c] + sums[4][c]) + (sums[1][c] + sums[5][c])) +
             ((sums[2][c] + sums[6][c]) + (sums[3][c] + sums[7][c])) + rest[c];
}
/// pairwise_sum() of all.
void column_sums(const Columns& columns, std::int64_t length, float* out) {
  if (length <= 128) return add_columns(columns.first, columns.stride, length, columns.width, out);
  const std::int64_t middle = length / 2 / 8 * 8;
  float others[Columns::kMost];
  column_sums(columns, middle, out);
  column_sums({columns.first + middle * columns.stride, columns.stride, columns.width}, length - middle, others);
  for (std::int64_t c = 0; c < columns.width; ++c) out[c] += others[c];
}

template <typename T>
T row_mean(const T* row, std::int64_t length) {
  return divided(row_sum(row, length), static_cast<T>(std::max<std::int64_t>(length, 1)));
}

struct SumOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_sum(row, length);
  }
  void operator()(const Columns& columns, std::int64_t length, float* out) const { column_sums(columns, length, out); }
};
struct MeanOf {
  template <typename T>
  T operator()(const T* row, std::int64_t length) const {
    return row_mean(row, length);
  }
  void operator()(const Columns& columns, std::int64_t length, float* out) const {
    column_sums(columns, length, out);
    for (std::int64_t c = 0; c < columns.width; ++c) out[c] /= static_cast<float>(length);
  }
};

/// A function of a real number on any element type; integers truncate.
template <typename T, typename Function>
T through_real(T x, const Function& function) {
  if constexpr (std::is_floating_point_v<T>)
    return function(x);
  else
    return to_integer<T>(function(static_cast<double>(x)));
}

template <typename T>
T log_of_sum_of_exponentials(const T* row, std::int64_t length) {
  if constexpr (std::is_floating_point_v<T>) {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < length; ++i) largest = larger(largest, row[i]);
    // All -inf (or nothing), an infinity or a NaN among them: that is the result.
    if (!std::isfinite(largest)) return largest;
    return largest + std::log(pairwise_sum<T>(0, length, [&](std::int64_t i) { return std::exp(row[i] - largest); }));
  } else {
    const std::vector<double> real(row, row + length);
    return to_integer<T>(log_of_sum_of_exponentials(real.data(), length));
  }
}

/// The shape of the output with every reduced dimension kept.
Shape kept_shape(const AdjointContext& ctx) {
  Shape shape = ctx.input_shape(0);
  for (std::int64_t axis : reduced_axes(ctx)) shape[static_cast<std::size_t>(axis)] = 1;
  return shape;
}
/// The gradient of the output, and its value, with every reduced dimension kept.
Value kept_gradient(AdjointContext& ctx) { return reshape(gradient(ctx), kept_shape(ctx)); }
Value kept_output(AdjointContext& ctx) { return reshape(output(ctx), kept_shape(ctx)); }

/// ReduceMax and ReduceMin: the elements that are the result share its gradient.
void adjoint_extreme_of_row(AdjointContext& ctx) {
  const Value chosen = 1 - abs(sign(input(ctx, 0) - kept_output(ctx)));
  ctx.set(0, (chosen * (kept_gradient(ctx) / sum(chosen, reduced_axes(ctx)))).id);
}

void adjoint_mean_of_row(AdjointContext& ctx) {
  const Shape &shape = ctx.input_shape(0), kept = kept_shape(ctx);
  const double count =
      static_cast<double>(num_elements(shape)) / static_cast<double>(std::max<std::int64_t>(1, num_elements(kept)));
  ctx.set(0, ctx.broadcast_to(kept_gradient(ctx).id, shape, 1 / count));
}

void adjoint_product_of_row(AdjointContext& ctx) {
  // The product of all others, also where one of them is 0.
  const std::vector<std::int64_t> axes = reduced_axes(ctx);
  const Value x = input(ctx, 0), zero = 1 - abs(sign(x)), divisor = x + zero;
  const Value others = reduce("ReduceProd", divisor, axes) / divisor, zeros = sum(zero, axes);
  const Value none = 1 - minimum(zeros, scalar(ctx, 1)), one = (1 - abs(zeros - 1)).with("Relu");
  ctx.set(0, (kept_gradient(ctx) * others * (none + one * zero)).id);
}

// What a row becomes.
constexpr auto kSquaresOf = []<typename T>(const T* row, std::int64_t length) {
  return row_sum(row, length, [](T x) { return times(x, x); });
};
constexpr auto kProductOf = []<typename T>(const T* row, std::int64_t length) {
  T product = 1;
  for (std::int64_t i = 0; i < length; ++i) product = times(product, row[i]);
  return product;
};

}  // namespace

OpTable reductions() {
  using F = Function;
  using Context = AdjointContext&;
  return {
      // ReduceL1, ai.onnx 1, 11, 13, 18: the sum of absolute values over axes.
      reduction(
          {.name = "ReduceL1", .function = F::kReduceL1},
          []<typename T>(const T* row, std::int64_t length) {
            return row_sum(row, length, [](T x) { return x < T{0} ? minus(T{0}, x) : x; });
          },
          [](Context ctx) { ctx.set(0, (sign(input(ctx, 0)) * kept_gradient(ctx)).id); }),
      // ReduceL2, ai.onnx 1, 11, 13, 18: the square root of the sum of squares over axes.
      reduction(
          {.name = "ReduceL2", .function = F::kReduceL2},
          [](const auto* row, std::int64_t length) {
            return through_real(kSquaresOf(row, length), [](auto x) { return std::sqrt(x); });
          },
          [](Context ctx) { ctx.set(0, (input(ctx, 0) * (kept_gradient(ctx) / kept_output(ctx))).id); }),
      // ReduceLogSum, ai.onnx 1, 11, 13, 18, 28: the logarithm of the sum over axes.
      reduction(
          {.name = "ReduceLogSum"},
          [](const auto* row, std::int64_t length) {
            return through_real(row_sum(row, length), [](auto x) { return std::log(x); });
          },
          [](Context ctx) {
            ctx.set(0, ctx.broadcast_to((kept_gradient(ctx) * exp(-kept_output(ctx))).id, ctx.input_shape(0)));
          }),
      // ReduceLogSumExp, ai.onnx 1, 11, 13, 18, 28: the logarithm of the sum of e^x over axes, in a form that does not
      // overflow.
      reduction(
          {.name = "ReduceLogSumExp"},
          [](const auto* row, std::int64_t length) { return log_of_sum_of_exponentials(row, length); },
          [](Context ctx) { ctx.set(0, (exp(input(ctx, 0) - kept_output(ctx)) * kept_gradient(ctx)).id); }),
      // ReduceMax, ai.onnx 1, 11, 12, 13, 18, 20: the largest element over axes; NaN wins. Of bools too, from opset 20.
      reduction<AllTypes>({.name = "ReduceMax", .function = F::kReduceMax, .exactness = Exactness::kSelects},
                          AlsoByColumns<ExtremeOf<false>>{}, adjoint_extreme_of_row),
      // ReduceMean, ai.onnx 1, 11, 13, 18: the mean over axes; integers truncate. Of nothing: 0.
      reduction({.name = "ReduceMean", .function = F::kReduceMean}, AlsoByColumns<MeanOf>{}, adjoint_mean_of_row),
      // ReduceMin, ai.onnx 1, 11, 12, 13, 18, 20: the smallest element over axes; NaN wins. Of bools too, from opset
      // 20.
      reduction<AllTypes>({.name = "ReduceMin", .function = F::kReduceMin, .exactness = Exactness::kSelects},
                          AlsoByColumns<ExtremeOf<true>>{}, adjoint_extreme_of_row),
      // ReduceProd, ai.onnx 1, 11, 13, 18: the product over axes.
      reduction({.name = "ReduceProd"}, kProductOf, adjoint_product_of_row),
      // ReduceSum, ai.onnx 1, 11, 13: the sum over axes.
      reduction({.name = "ReduceSum", .function = F::kReduceSum}, AlsoByColumns<SumOf>{},
                [](Context ctx) { ctx.set(0, ctx.broadcast_to(kept_gradient(ctx).id, ctx.input_shape(0))); }),
      // ReduceSumSquare, ai.onnx 1, 11, 13, 18: the sum of squares over axes.
      reduction({.name = "ReduceSumSquare", .function = F::kReduceSumSquare}, kSquaresOf,
                [](Context ctx) { ctx.set(0, (input(ctx, 0) * (kept_gradient(ctx) * 2)).id); }),
  };
}

}  // namespace ulpscope::ops
