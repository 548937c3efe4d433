#include "ops/adjoint_values.h"

#include <algorithm>
#include <numeric>

namespace ulpscope::ops {

Value transpose(Value x, std::vector<std::int64_t> perm) {
  std::vector<std::int64_t> identity(perm.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (perm == identity) return x;
  return {x.ctx, x.ctx->add("Transpose", {x.id}, {{"perm", std::move(perm)}})};
}

Value transposed(Value x) {
  std::vector<std::int64_t> perm(x.shape().size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(x, std::move(perm));
}

Value reduce(std::string_view op, Value x, const std::vector<std::int64_t>& axes) {
  if (axes.empty()) return x;
  return {x.ctx, x.ctx->add(op, {x.id, x.ctx->integers(axes)}, {{"keepdims", std::int64_t{1}}})};
}

Value slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  if (begin == 0 && end == x.shape()[static_cast<std::size_t>(axis)]) return x;
  AdjointContext& ctx = *x.ctx;
  return {&ctx, ctx.add("Slice", {x.id, ctx.integers({begin}), ctx.integers({end}), ctx.integers({axis})})};
}

Value pad(Value x, const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& end) {
  std::vector<std::int64_t> pads = begin;
  pads.insert(pads.end(), end.begin(), end.end());
  if (std::ranges::all_of(pads, [](std::int64_t p) { return p == 0; })) return x;
  return {x.ctx, x.ctx->add("Pad", {x.id, x.ctx->integers(std::move(pads))})};
}

Value concat(AdjointContext& ctx, std::span<const Value> parts, std::int64_t axis) {
  if (parts.size() == 1) return parts[0];
  std::vector<TensorId> ids;
  for (const Value& part : parts) ids.push_back(part.id);
  return {&ctx, ctx.add("Concat", ids, {{"axis", axis}})};
}

Value scatter_add(Value updates, TensorId indices, const Shape& shape, std::size_t axis) {
  AdjointContext& ctx = *updates.ctx;
  return {&ctx, ctx.add("ScatterElements", {zeros(ctx, shape).id, indices, updates.id},
                        {{"axis", static_cast<std::int64_t>(axis)}, {"reduction", std::string("add")}})};
}

Value to_float(Value x) {
  // TensorProto.DataType: FLOAT is 1, DOUBLE is 11.
  const std::int64_t type = x.ctx->type() == DataType::kFloat64 ? 11 : 1;
  return {x.ctx, x.ctx->add("Cast", {x.id}, {{"to", type}})};
}

Value zeros(AdjointContext& ctx, const Shape& shape) {
  Tensor value(ctx.type(), shape);
  std::fill_n(static_cast<std::byte*>(value.raw()), value.bytes(), std::byte{0});
  return {&ctx, ctx.constant(value)};
}

std::vector<std::int64_t> axes_after(std::int64_t first, std::size_t rank) {
  std::vector<std::int64_t> axes(rank - static_cast<std::size_t>(first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

}  // namespace ulpscope::ops
