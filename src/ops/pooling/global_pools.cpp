// GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one number per batch and channel.
#include <cmath>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

/// (N, C, d...) to (N, C, 1...).
void infer_global_pool(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  Shape shape = ctx.shape(0);
  if (shape.size() < 2) ctx.fail(fmt::format("expected an input (N, C, ...), got shape {}", to_string(shape)));
  for (std::size_t i = 2; i < shape.size(); ++i) shape[i] = 1;
  ctx.set_shape(0, std::move(shape));
}

/// out[plane] = reduce(elements of the plane, their number).
template <typename Reduce>
void run_global_pool(KernelContext& ctx, const Reduce& reduce) {
  const std::int64_t planes = ctx.output(0).size();
  const std::int64_t volume = planes == 0 ? 0 : ctx.input(0).size() / planes;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(planes, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = reduce(x + i * volume, volume);
    });
  });
}

void run_average(KernelContext& ctx) {
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    T sum{};
    for (std::int64_t i = 0; i < count; ++i) sum += x[i];
    return sum / static_cast<T>(count);
  });
}

void adjoint_average(AdjointContext& ctx) {
  const Shape& shape = ctx.input_shape(0);
  ctx.set(0, ctx.broadcast_to(ctx.gradient(0), shape, 1 / static_cast<double>(product(shape, 2, shape.size()))));
}

void run_max(KernelContext& ctx) {
  run_global_pool(ctx, []<typename T>(const T* x, std::int64_t count) {
    T best = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < count; ++i)
      if (x[i] > best || x[i] != x[i]) best = x[i];
    return best;
  });
}

void adjoint_max(AdjointContext& ctx) {
  const Value chosen = 1 - abs(sign(input(ctx, 0) - output(ctx)));
  ctx.set(0, (chosen * (gradient(ctx) / sum(chosen, axes_after(2, ctx.input_shape(0).size())))).id);
}

void run_lp(KernelContext& ctx) {
  run_global_pool(ctx, [p = ctx.attributes().integer("p", 2)]<typename T>(const T* x, std::int64_t count) {
    T sum{};
    for (std::int64_t i = 0; i < count; ++i) {
      const T v = std::abs(x[i]);
      sum += p == 1 ? v : p == 2 ? v * v : std::pow(v, static_cast<T>(p));
    }
    return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, T{1} / static_cast<T>(p));
  });
}

void adjoint_lp(AdjointContext& ctx) {
  const double p = static_cast<double>(ctx.attributes().integer("p", 2));
  const Value x = input(ctx, 0), y = output(ctx);
  // |x|^(p - 1) sign(x) y^(1 - p); a norm of 0 counts as 1.
  const Value norm = y + (1 - sign(y));
  const Value share = p == 1 ? gradient(ctx) : gradient(ctx) * (p == 2 ? 1 / norm : power(norm, 1 - p));
  const Value own = p == 1 ? sign(x) : p == 2 ? x : sign(x) * power(abs(x), p - 1);
  ctx.set(0, (own * share).id);
}

/// A row of the table.
OpDef global_pool(OpDef op, void (*run)(KernelContext&), void (*adjoint)(AdjointContext&)) {
  op.types = {kFloats};
  op.kind = OpKind::kPooling;
  op.infer = infer_global_pool;
  op.run = run;
  op.adjoint = adjoint;
  return op;
}

}  // namespace

OpTable global_pools() {
  return {
      // GlobalAveragePool, ai.onnx 1, 22: the mean of each channel.
      global_pool({.name = "GlobalAveragePool", .function = Function::kGlobalAveragePool}, run_average,
                  adjoint_average),
      // GlobalMaxPool, ai.onnx 1, 22: the largest element of each channel.
      global_pool({.name = "GlobalMaxPool", .exactness = Exactness::kSelects}, run_max, adjoint_max),
      // GlobalLpPool, ai.onnx 1, 2, 22: the Lp norm of each channel.
      global_pool({.name = "GlobalLpPool"}, run_lp, adjoint_lp),
  };
}

}  // namespace ulpscope::ops
