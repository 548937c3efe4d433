#include "ops/common.h"

#include <algorithm>
#include <utility>

#include "graph/element_type.h"

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

OpDef make_op(OpDef op, Infer infer, Run run, Adjoint adjoint) {
  op.infer = infer;
  op.run = run;
  op.adjoint = adjoint;
  return op;
}

OpDef fixed_op(OpDef op, Infer infer, Run run, Adjoint adjoint) {
  op.precision = PrecisionRule::kFixed;
  return make_op(op, infer, run, adjoint);
}

OpDef movement_op(OpDef op, Infer infer, Run run, Adjoint adjoint) {
  op.precision = PrecisionRule::kMovement;
  op.kind = OpKind::kMovement;
  return make_op(op, infer, run, adjoint);
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
  if (!result) ctx.fail("shapes {} and {} cannot be broadcast together", to_string(a), to_string(b));
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
  if (ctx.has_shape(0)) ctx.set_shape(0, ctx.shape(0));
}

void infer_broadcast(InferContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    const DataType first = ctx.type(0), other = ctx.type(i);
    if (first != DataType::kUndefined && other != DataType::kUndefined && physical_type(first) != physical_type(other))
      ctx.fail("expected inputs of one type, got {} and {}", name_of(first), name_of(other));
  }
  if (!ctx.has_shape(0)) return;
  Shape shape = ctx.shape(0);
  for (int i = 1; i < ctx.num_inputs(); ++i) shape = broadcast_or_fail(ctx, shape, ctx.shape(i));
  ctx.set_shape(0, std::move(shape));
}

void infer_comparison(InferContext& ctx) {
  ctx.set_type(0, DataType::kBool);
  infer_broadcast(ctx);
}

void require_type(const InferContext& ctx, int i, DataType type) {
  if (!ctx.has_input(i) || ctx.type(i) == DataType::kUndefined || type == DataType::kUndefined) return;
  if (physical_type(ctx.type(i)) != physical_type(type))
    ctx.fail("expected elements of type {} as input {}, got {}", name_of(type), i, name_of(ctx.type(i)));
}

void require_type_of_first(const InferContext& ctx, std::initializer_list<int> inputs) {
  for (int i : inputs) require_type(ctx, i, ctx.type(0));
}

DataType data_type_from_onnx(const Layer& layer, std::int64_t number) {
  if (!defines_onnx_type(number)) fail(layer, fmt::format("{} is not an element type of ONNX", number));
  const std::optional<DataType> type = from_onnx_type(number);
  if (!type)
    fail(layer, fmt::format("elements of type {} are not supported", onnx_type_name(number)), ErrorCode::kUnsupported);
  return *type;
}

DataType dtype_attribute(const Layer& layer, DataType otherwise) {
  const std::int64_t number = layer.attributes.integer("dtype", 0);
  return number == 0 ? otherwise : data_type_from_onnx(layer, number);
}

std::int64_t to_index(double value) noexcept {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  if (!(value > static_cast<double>(-kFar))) return -kFar;  // NaN, too
  return value < static_cast<double>(kFar) ? static_cast<std::int64_t>(value) : kFar;
}

}  // namespace ulpscope::ops
