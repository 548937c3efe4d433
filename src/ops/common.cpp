#include "ops/common.h"

#include <algorithm>

namespace ulpscope::ops {

void fail(const Layer& layer, const std::string& message, ErrorCode code) {
  throw Error(code, message, {"infer", layer.name, std::string(layer.op->name)});
}

Coefficients coefficients_of(const Layer& layer) {
  const auto value = [&](const Coefficient& c) {
    return c.attribute.empty() ? 0.0F : layer.attributes.real(c.attribute, c.absent);
  };
  return {value(layer.op->coefficients[0]), value(layer.op->coefficients[1])};
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return std::nullopt;
    result[result.size() - 1 - i] = da == 1 ? db : da;
  }
  return result;
}

Shape broadcast_or_fail(const InferContext& ctx, const Shape& a, const Shape& b) {
  auto result = broadcast(a, b);
  if (!result) ctx.fail(fmt::format("shapes {} and {} cannot be broadcast together", to_string(a), to_string(b)));
  return *std::move(result);
}

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> result(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    result[i] = stride;
    stride *= shape[i];
  }
  return result;
}

std::vector<std::int64_t> broadcast_strides(const Shape& shape, const Shape& target) {
  const std::vector<std::int64_t> dense = strides_of(shape);
  std::vector<std::int64_t> result(target.size(), 0);
  const std::size_t offset = target.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) result[offset + i] = dense[i];
  return result;
}

void infer_same_as_first(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, ctx.shape(0));
}

namespace {
Shape broadcast_inputs(InferContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    const DataType first = ctx.type(0), other = ctx.type(i);
    if (first != DataType::kUndefined && other != DataType::kUndefined && physical_type(first) != physical_type(other))
      ctx.fail(fmt::format("expected inputs of one type, got {} and {}", name_of(first), name_of(other)));
  }
  Shape shape = ctx.shape(0);
  for (int i = 1; i < ctx.num_inputs(); ++i) shape = broadcast_or_fail(ctx, shape, ctx.shape(i));
  return shape;
}
}  // namespace

void infer_broadcast(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, broadcast_inputs(ctx));
}

void infer_comparison(InferContext& ctx) {
  ctx.set_type(0, DataType::kBool);
  ctx.set_shape(0, broadcast_inputs(ctx));
}

}  // namespace ulpscope::ops
