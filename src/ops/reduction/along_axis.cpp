// ArgMax and ArgMin, CumSum and CumProd: along one axis.
#include <algorithm>

#include "core/division.h"
#include "core/vector_clones.h"
#include "ops/elementwise.h"
#include "ops/extremes.h"
#include "ops/reduction/cumulative.h"
#include "ops/rows.h"

namespace ulpscope::ops {
namespace {

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
      if constexpr (std::is_same_v<T, float>)
        if (!last && rows.length > 0) {
          const Extremes found = extremes_of(row, rows.length);
          const float value = smallest ? found.low : found.high;
          out[r] = find_first(row, rows.length, found.has_nan ? std::numeric_limits<float>::quiet_NaN() : value);
          return;
        }
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

}  // namespace ulpscope::ops
