// ReduceX: one number for each row over some axes; sums are pairwise, integers wrap around. ArgMax and ArgMin, CumSum
// and CumProd work along one axis.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/division.h"
#include "core/vector_clones.h"
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/reduction/cumulative.h"
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
  ctx.set_type(0, ctx.type(0));
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

void infer_arg_extreme(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt64);
  Shape shape = ctx.shape(0);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), ctx.rank(0));
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const bool empty = *at == 0;
  if (ctx.attributes().integer("keepdims", 1) != 0)
    *at = 1;
  else
    shape.erase(at);
  if (empty && num_elements(shape) > 0) ctx.fail("the axis has no elements to choose from");
  ctx.set_shape(0, std::move(shape));
}

/// The same as for rows, of kLanes columns: where in each of them it is.
constexpr std::int64_t kArgLanes = 16;
template <bool smallest>
ULPSCOPE_VECTOR_CLONES void arg_extremes(const float* in, std::int64_t stride, std::int64_t length, bool last,
                                         std::int64_t* out) {
  float best[kArgLanes];
  std::int32_t where[kArgLanes] = {};
  std::memcpy(best, in, sizeof best);
  const std::int32_t takes_equal = last ? 1 : 0;
  for (std::int64_t i = 1; i < length; ++i)
    for (std::int64_t j = 0; j < kArgLanes; ++j) {
      const float value = in[i * stride + j];
      const std::int32_t beats =
          (smallest ? value < best[j] : value > best[j]) | (value != value) | ((value == best[j]) & (takes_equal != 0));
      const bool takes = (beats & (best[j] == best[j])) != 0;
      where[j] = takes ? static_cast<std::int32_t>(i) : where[j];
      best[j] = takes ? value : best[j];
    }
  std::copy_n(where, kArgLanes, out);
}

/// False: there are too few columns.
template <bool smallest>
bool run_arg_columns(const Tensor& in, std::size_t axis, bool last, std::int64_t* out) {
  const Shape& shape = in.shape();
  const std::int64_t length = shape[axis], inner = product(shape, axis + 1, shape.size());
  const std::int64_t outer = product(shape, 0, axis), blocks = (inner + kArgLanes - 1) / kArgLanes;
  if (in.type() != DataType::kFloat32 || inner < kArgLanes || length < 1 || length >= std::int64_t{1} << 31)
    return false;
  parallel_for(outer * blocks, rows_per_task(length * kArgLanes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // The last block overlaps with the one ahead.
      const std::int64_t o = i / blocks, at = std::min(i % blocks * kArgLanes, inner - kArgLanes);
      arg_extremes<smallest>(in.data<float>() + o * length * inner + at, inner, length, last, out + o * inner + at);
    }
  });
  return true;
}

/// The first NaN goes before everything. Of equals the first, or the last with select_last_index.
template <bool smallest>
void run_arg_extreme(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), in.rank());
  const bool last = ctx.attributes().integer("select_last_index", 0) != 0;
  if (run_arg_columns<smallest>(in, static_cast<std::size_t>(axis), last, ctx.output(0).data<std::int64_t>())) return;
  const Rows rows = to_rows(in, {axis});
  with_type(NumericTypes{}, ctx, in.type(), [&]<typename T>(T) {
    const T* x = rows.tensor.data<T>();
    std::int64_t* out = ctx.output(0).data<std::int64_t>();
    parallel_each(rows.count, rows_per_task(rows.length), [&](std::int64_t r) {
      const T* row = x + r * rows.length;
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < rows.length && row[best] == row[best]; ++i)
        if (row[i] != row[i] || (smallest ? row[i] < row[best] : row[i] > row[best]) || (last && row[i] == row[best]))
          best = i;
      out[r] = best;
    });
  });
}

OpDef arg_extreme_row(std::string_view name, void (*run)(KernelContext&)) {
  return {.name = name,
          .types = {kNumbers},
          .precision = PrecisionRule::kFixed,
          .infer = infer_arg_extreme,
          .run = run,
          .axes = axes_of_attribute<0>};
}

/// out[i] = function(before[i], x[i]).
template <typename T, typename Function>
ULPSCOPE_VECTOR_CLONES void accumulate_row(const T* before, const T* x, std::int64_t count, const Function& function,
                                           T* out) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) out[i] = function(before[i], x[i]);
}

/// out[i] = function(out[i - 1], x[i]) from `start`, of so many lines side by side whose elements lie a stride apart.
template <typename T, typename Function>
void accumulate_lines(const T* x, T* y, const CumulativeForm& form, std::int64_t length, std::int64_t stride,
                      std::int64_t lines, const T* start, const Function& function) {
  const auto place = [&](std::int64_t i) { return (form.reverse ? length - 1 - i : i) * stride; };
  if (form.exclusive && length > 0) std::copy_n(start, lines, y + place(0));
  for (std::int64_t i = form.exclusive ? 1 : 0; i < length; ++i)
    accumulate_row(i == 0 ? start : y + place(i - 1), x + place(form.exclusive ? i - 1 : i), lines, function,
                   y + place(i));
}

/// The same of one line.
template <typename T, typename Function>
void accumulate_line(const T* x, T* y, const CumulativeForm& form, std::int64_t length, std::int64_t stride, T total,
                     const Function& function) {
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t at = (form.reverse ? length - 1 - i : i) * stride;
    const T next = function(total, x[at]);
    y[at] = form.exclusive ? total : next;
    total = next;
  }
}

/// Attributes exclusive (up to each element, without it) and reverse.
template <typename Function>
void run_cumulative(KernelContext& ctx, int start, Function function) {
  const Tensor& in = ctx.input(0);
  constexpr std::int64_t kLines = 512;
  const CumulativeForm form{.exclusive = ctx.attributes().integer("exclusive", 0) != 0,
                            .reverse = ctx.attributes().integer("reverse", 0) != 0};
  const std::vector<std::int64_t> axes = ctx.input_ints(1);
  if (axes.size() != 1) ctx.fail("expected one axis, got {}", axes.size());
  const auto axis = static_cast<std::size_t>(normalize_axis(ctx, axes[0], in.rank()));
  const Shape& shape = in.shape();
  const std::int64_t length = shape[axis], inner = product(shape, axis + 1, shape.size());
  const std::int64_t outer = product(shape, 0, axis);
  with_type(NumericTypes{}, ctx, in.type(), [&]<typename T>(T) {
    const T* x = in.data<T>();
    T* y = ctx.output(0).template data<T>();
    const std::vector<T> starts(kLines, static_cast<T>(start));
    const std::int64_t least = inner > 1 ? kLines / 2 : 1;
    parallel_for(outer * inner, std::max(least, kElementsPerTask / std::max<std::int64_t>(1, length)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t line = begin, lines = 0; line < end; line += lines) {
                     const std::int64_t base = line / inner * length * inner + line % inner;
                     lines = std::min({end - line, inner - line % inner, kLines});
                     if (lines > 1)
                       accumulate_lines(x + base, y + base, form, length, inner, lines, starts.data(), function);
                     else
                       accumulate_line(x + base, y + base, form, length, inner, static_cast<T>(start), function);
                   }
                 });
  });
}

void run_cum_sum(KernelContext& ctx) {
  run_cumulative(ctx, 0, [](auto a, auto b) { return plus(a, b); });
}
void run_cum_prod(KernelContext& ctx) {
  run_cumulative(ctx, 1, [](auto a, auto b) { return times(a, b); });
}

void adjoint_cum_sum(AdjointContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  ctx.set(0, ctx.add("CumSum", {ctx.gradient(0), ctx.input(1)},
                     {{"exclusive", attributes.integer("exclusive", 0)},
                      {"reverse", std::int64_t{attributes.integer("reverse", 0) == 0}}}));
}

OpDef cumulative_row(std::string_view name, int since_version, void (*run)(KernelContext&),
                     void (*adjoint)(AdjointContext&) = nullptr) {
  return {.name = name,
          .since_version = since_version,
          .inputs = {2, 2},
          .types = {kNumbers, kIndices},
          .weights = 0b10,
          .parameters = 0b10,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
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

std::optional<CumulativeForm> cumulative_form(const Layer& layer, std::int64_t rank,
                                              std::span<const Tensor* const> values) {
  const bool product = layer.op->run == run_cum_prod;
  if (!product && layer.op->run != run_cum_sum) return std::nullopt;
  if (values[1] == nullptr || values[1]->size() != 1) return std::nullopt;
  const Tensor wide = values[1]->cast(DataType::kInt64);
  const std::int64_t given = wide.data<std::int64_t>()[0], axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) return std::nullopt;
  return CumulativeForm{axis, product, layer.attributes.integer("exclusive", 0) != 0,
                        layer.attributes.integer("reverse", 0) != 0};
}

OpTable running_sums_and_extremes() {
  return {
      // ArgMax, ai.onnx 1, 11, 12, 13: the index of the largest element along an axis.
      arg_extreme_row("ArgMax", run_arg_extreme<false>),
      // ArgMin, ai.onnx 1, 11, 12, 13: the index of the smallest element along an axis.
      arg_extreme_row("ArgMin", run_arg_extreme<true>),
      // CumSum, ai.onnx 11, 14.
      cumulative_row("CumSum", 11, run_cum_sum, adjoint_cum_sum),
      // CumProd, ai.onnx 26.
      cumulative_row("CumProd", 26, run_cum_prod),
  };
}

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
