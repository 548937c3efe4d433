// Tensors made from sizes, shapes and attributes.
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
Tensor value_of(const Context& ctx) {
  if (!ctx.attributes().has("value")) return Tensor::scalar(0.0f);
  Tensor value = ctx.attributes().required_tensor("value");
  if (value.size() != 1) ctx.fail("expected one element as value, got {}", value.size());
  return value;
}

void infer_constant_of_shape(InferContext& ctx) {
  ctx.set_type(0, value_of(ctx).type());
  const Shape shape = ctx.input_ints(0);
  for (std::int64_t dim : shape)
    if (dim < 0) ctx.fail("cannot fill the shape {}", to_string(shape));
  ctx.set_shape(0, shape);
}

void run_constant_of_shape(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const Tensor value = value_of(ctx).cast(out.type());
  fill_elements(out.type(), out.raw(), out.size(), value.raw());
}

void infer_eye_like(InferContext& ctx) {
  ctx.set_type(0, dtype_attribute(ctx.layer(), ctx.type(0)));
  if (ctx.rank(0) != 2) ctx.fail("expected a matrix, got shape {}", to_string(ctx.shape(0)));
  ctx.set_shape(0, ctx.shape(0));
}

void run_eye_like(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const std::int64_t rows = out.shape()[0], columns = out.shape()[1];
  const std::int64_t k = std::clamp(ctx.attributes().integer("k", 0), -rows, columns);
  with_type(AllTypes{}, ctx, out.type(), [&]<typename T>(T) {
    T* at = out.data<T>();
    std::fill(at, at + out.size(), T{0});
    for (std::int64_t row = std::max<std::int64_t>(0, -k); row < rows && row + k < columns; ++row)
      at[row * columns + row + k] = T{1};
  });
}

using RangeTypes = TypeList<float, double, std::int16_t, std::int32_t, std::int64_t>;

template <typename T>
T range_bound(const InferContext& ctx, int i) {
  const Tensor& tensor = ctx.value(i);
  if (tensor.size() != 1 || tensor.type() != type_of<T>())
    ctx.fail("expected one {} as input {}, got {} of {}", name_of(type_of<T>()), i, tensor.size(),
             name_of(tensor.type()));
  return tensor.data<T>()[0];
}

template <typename T>
std::int64_t count_of(const InferContext& ctx) {
  const T start = range_bound<T>(ctx, 0), limit = range_bound<T>(ctx, 1), delta = range_bound<T>(ctx, 2);
  if (delta == T{0}) ctx.fail("delta is 0");
  if constexpr (std::is_floating_point_v<T>) {
    const double count =
        std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
    if (!(count < 0x1p40)) ctx.fail("a range from {} to {} in steps of {} is not a tensor", start, limit, delta);
    return count > 0 ? static_cast<std::int64_t>(count) : 0;
  } else {
    if (delta > 0 ? start >= limit : start <= limit) return 0;
    // Unsigned, since the distance may exceed int64.
    const std::uint64_t from = static_cast<std::uint64_t>(std::int64_t{start}),
                        to = static_cast<std::uint64_t>(std::int64_t{limit});
    const std::uint64_t distance = delta > 0 ? to - from : from - to,
                        step = static_cast<std::uint64_t>(std::int64_t{delta});
    const std::uint64_t count = (distance - 1) / (delta > 0 ? step : -step) + 1;
    if (count >= std::uint64_t{1} << 40)
      ctx.fail("a range from {} to {} in steps of {} is not a tensor", start, limit, delta);
    return static_cast<std::int64_t>(count);
  }
}

void infer_range(InferContext& ctx) {
  if (!visit_type(RangeTypes{}, ctx.value(0).type(), [&]<typename T>(T) { ctx.set_shape(0, {count_of<T>(ctx)}); }))
    ctx.fail("cannot count in {}", name_of(ctx.type(0)));
}

void run_range(KernelContext& ctx) {
  with_type(RangeTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T start = ctx.input(0).data<T>()[0], delta = ctx.input(2).data<T>()[0];
    Tensor& output = ctx.output(0);
    T* out = output.data<T>();
    parallel_for(output.size(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_floating_point_v<T>)
          out[i] = start + static_cast<T>(i) * delta;
        else
          out[i] = static_cast<T>(static_cast<std::uint64_t>(start) +
                                  static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(delta));
      }
    });
  });
}

/// The dimensions that are asked for.
template <typename Context>
Shape selected(const Context& ctx) {
  const Shape& shape = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t start = place(ctx.attributes().integer("start", 0)),
                     end = place(ctx.attributes().integer("end", rank));
  return start < end ? Shape(shape.begin() + start, shape.begin() + end) : Shape{};
}

void infer_shape(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt64);
  ctx.set_shape(0, {static_cast<std::int64_t>(selected(ctx).size())});
}

void run_shape(KernelContext& ctx) {
  const Shape dims = selected(ctx);
  std::copy(dims.begin(), dims.end(), ctx.output(0).data<std::int64_t>());
}

}  // namespace

OpTable creation() {
  return {
      // Constant, ai.onnx 1, 9, 11, 12, 13: a value known when the network is read. The importer turns every form of
      // the attribute (value, value_float, value_ints, ...) and every initializer that is read as a tensor into
      // TensorInfo::value, from which the driver takes type, shape and elements.
      fixed_op(
          {.name = "Constant", .inputs = {0, 0}, .kind = OpKind::kConstant}, [](InferContext&) {}, nullptr),
      // ConstantOfShape, ai.onnx 9, 20, 21, 23, 24, 25: one value (float32 zero by default) in a shape given as input.
      fixed_op({.name = "ConstantOfShape",
                .since_version = 9,
                .types = {kIndices},
                .weights = 0b1,
                .storage_types = StorageTypes::kTaken,
                .fills = true},
               infer_constant_of_shape, run_constant_of_shape),
      // EyeLike, ai.onnx 9, 22: ones on diagonal k of a matrix with the shape of the input.
      fixed_op({.name = "EyeLike", .since_version = 9}, infer_eye_like, run_eye_like),
      // Range, ai.onnx 11, 27 (stash_type): start, start + delta, ... below (above) limit. Floats are start + i *
      // delta, in float32 also for narrower types (stash_type 1).
      fixed_op({.name = "Range", .since_version = 11, .inputs = {3, 3}, .types = {set_of(RangeTypes{})}}, infer_range,
               run_range),
      // Shape, ai.onnx 1, 13, 15 (start, end), 19, 21, 23, 24, 25: the dimensions of a tensor.
      fixed_op({.name = "Shape", .storage_types = StorageTypes::kTaken, .reads_shape_only = true}, infer_shape,
               run_shape),
      // Size, ai.onnx 1, 13, 19, 21, 23, 24, 25: the number of elements.
      fixed_op(
          {.name = "Size", .storage_types = StorageTypes::kTaken, .reads_shape_only = true},
          [](InferContext& ctx) { ctx.set(0, DataType::kInt64, {}); },
          [](KernelContext& ctx) { ctx.output(0).data<std::int64_t>()[0] = ctx.input(0).size(); }),
  };
}

}  // namespace ulpscope::ops
