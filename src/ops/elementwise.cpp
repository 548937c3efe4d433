#include "ops/elementwise.h"

#include <array>

#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void check_one_type(const KernelContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i)
    if (ctx.input(i).type() != ctx.input(0).type())
      ctx.fail("expected inputs of one type, got {} and {}", name_of(ctx.input(0).type()),
               name_of(ctx.input(i).type()));
}

}  // namespace

BroadcastRows::BroadcastRows(const Shape& to, std::vector<std::vector<std::int64_t>> strides_of_inputs)
    : strides(strides_of_inputs.size()) {
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 1) continue;
    bool merges = !shape.empty();
    for (std::size_t k = 0; k < strides.size() && merges; ++k)
      merges = strides[k].back() == strides_of_inputs[k][d] * to[d];
    if (!merges) shape.push_back(1);
    shape.back() *= to[d];
    for (std::size_t k = 0; k < strides.size(); ++k) {
      if (!merges) strides[k].push_back(0);
      strides[k].back() = strides_of_inputs[k][d];
    }
  }
  if (!shape.empty()) return;
  shape = {1};
  for (auto& one : strides) one = {0};
}

void BroadcastRows::for_each(const std::function<void(std::int64_t first, const std::int64_t* at)>& row) const {
  const std::int64_t total = num_elements(shape), inner = count();
  if (total == 0) return;
  parallel_for(total / inner, std::max<std::int64_t>(1, kElementsPerTask / inner),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   std::array<std::int64_t, 3> at{};
                   std::int64_t rest = r;
                   for (std::size_t d = shape.size() - 1; d-- > 0;) {
                     const std::int64_t index = rest % shape[d];
                     rest /= shape[d];
                     for (std::size_t k = 0; k < strides.size(); ++k) at[k] += index * strides[k][d];
                   }
                   row(r * inner, at.data());
                 }
               });
}

void map_unary(const Tensor& input, Tensor& output, UnaryLoop loop, Coefficients c) {
  parallel_for(input.size(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    loop(element(input, begin), element(output, begin), end - begin, c);
  });
}

void map_binary(const Tensor& a, const Tensor& b, Tensor& output, BinaryLoop loop, Coefficients c) {
  const Shape& shape = output.shape();
  const BroadcastRows rows(shape, {broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape)});
  if (rows.shape.size() == 1) {  // equal shapes, a scalar: one long row is work for several threads
    parallel_for(rows.count(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      loop(element(a, begin * rows.step(0)), rows.step(0), element(b, begin * rows.step(1)), rows.step(1),
           element(output, begin), end - begin, c);
    });
    return;
  }
  rows.for_each([&](std::int64_t first, const std::int64_t* at) {
    loop(element(a, at[0]), rows.step(0), element(b, at[1]), rows.step(1), element(output, first), rows.count(), c);
  });
}

void run_unary(KernelContext& ctx, UnaryLoop loop) {
  map_unary(ctx.input(0), ctx.output(0), loop, coefficients_of(ctx.layer()));
}

void run_binary(KernelContext& ctx, BinaryLoop loop) {
  check_one_type(ctx);
  map_binary(ctx.input(0), ctx.input(1), ctx.output(0), loop, coefficients_of(ctx.layer()));
}

void run_nary(KernelContext& ctx, BinaryLoop loop) {
  check_one_type(ctx);
  Tensor& out = ctx.output(0);
  if (ctx.num_inputs() == 1) return copy_bytes(ctx.input(0).raw(), out.raw(), out.bytes());
  map_binary(ctx.input(0), ctx.input(1), out, loop);
  for (int i = 2; i < ctx.num_inputs(); ++i) map_binary(out, ctx.input(i), out, loop);
}

}  // namespace ulpscope::ops
