// MatMul, ai.onnx 1, 9, 13: numpy.matmul.
#include <array>

#include "core/parallel.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Dimensions {
  Shape a, b;    ///< With at least two dimensions.
  Shape batch;   ///< Broadcast leading dimensions.
  std::int64_t m, n, k;
};

template <typename Context>
Dimensions dimensions(const Context& ctx, Shape a, Shape b) {
  if (a.empty() || b.empty()) ctx.fail("expected inputs with at least one dimension, got a scalar");
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const std::int64_t m = a[a.size() - 2], k = a.back(), n = b.back();
  if (k != b[b.size() - 2]) ctx.fail(fmt::format("shapes {} and {} do not fit: {} columns against {} rows", to_string(a), to_string(b), k, b[b.size() - 2]));
  const auto batch = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!batch) ctx.fail(fmt::format("the leading dimensions of {} and {} cannot be broadcast together", to_string(a), to_string(b)));
  return {std::move(a), std::move(b), *batch, m, n, k};
}

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Dimensions d = dimensions(ctx, ctx.shape(0), ctx.shape(1));
  Shape shape = d.batch;
  if (ctx.rank(0) > 1) shape.push_back(d.m);
  if (ctx.rank(1) > 1) shape.push_back(d.n);
  ctx.set_shape(0, std::move(shape));
}

template <typename T>
void multiply(const T* a, const T* b, T* out, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    T* row = out + i * n;
    std::fill(row, row + n, T{});
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(row[j] + a[i * k + p] * b[p * n + j]);
  }
}

void run(KernelContext& ctx) {
  const Dimensions d = dimensions(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* a = ctx.input(0).data<T>();
    const T* b = ctx.input(1).data<T>();
    T* out = ctx.output(0).data<T>();
    const std::array strides{broadcast_strides(Shape(d.a.begin(), d.a.end() - 2), d.batch),
                             broadcast_strides(Shape(d.b.begin(), d.b.end() - 2), d.batch)};
    for_each_broadcast(d.batch, strides, [&](std::int64_t i, const std::array<std::int64_t, 2>& at) {
      multiply(a + at[0] * d.m * d.k, b + at[1] * d.k * d.n, out + i * d.m * d.n, d.m, d.n, d.k);
    });
  });
}

}  // namespace

OpDef matmul() {
  return {.name = "MatMul", .inputs = {2, 2}, .kind = OpKind::kContraction, .infer = infer, .run = run};
}

}  // namespace ulpscope::ops
