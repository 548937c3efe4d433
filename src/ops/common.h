// What many operators need: type dispatch, axes, broadcasting.
#pragma once

#include <cstdint>

#include "core/element_types.h"
#include "graph/network.h"
#include "graph/op.h"
#include "ulpscope/error.h"

namespace ulpscope::ops {

/// The operators of one source.
using OpTable = std::vector<OpDef>;

/// A row of a table: an operator with these properties, and what carries it out (OpDef::infer, run, adjoint).
using Infer = void (*)(InferContext&);
using Run = void (*)(KernelContext&);
using Adjoint = void (*)(AdjointContext&);
OpDef make_op(OpDef op, Infer infer, Run run, Adjoint adjoint = nullptr);
/// The same with PrecisionRule::kFixed.
OpDef fixed_op(OpDef op, Infer infer, Run run, Adjoint adjoint = nullptr);
/// The same with PrecisionRule::kMovement and OpKind::kMovement.
OpDef movement_op(OpDef op, Infer infer, Run run, Adjoint adjoint = nullptr);

using FloatTypes = TypeList<float, double>;
using IntegerTypes = TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                              std::int64_t, std::uint64_t>;
using NumericTypes = TypeList<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                              std::uint32_t, std::int64_t, std::uint64_t>;
/// What ONNX lets sums and products take.
using WideTypes = TypeList<float, double, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;

template <typename... Ts>
constexpr TypeSet set_of(TypeList<Ts...>) {
  return {type_of<Ts>()...};
}

/// Calls function(T{}) for the C++ type T in the list that holds elements of the physical type `type`; fails, naming
/// the layer, when the list has none (OpDef::types keeps such types out).
template <typename... Ts, typename Function>
void with_type(TypeList<Ts...> types, const KernelContext& ctx, DataType type, Function&& function) {
  if (!visit_type(types, type, function)) ctx.fail("has no kernel for elements of type {}", name_of(type));
}

/// Throws Error with the layer's name: attributes or shapes do not fit.
[[noreturn]] void fail(const Layer& layer, const std::string& message, ErrorCode code = ErrorCode::kInvalidFile);

/// An axis in [-rank, rank) as one in [0, rank); fails otherwise. Works with both contexts.
template <typename Context>
std::int64_t normalize_axis(const Context& ctx, std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank) ctx.fail("axis {} is outside of a tensor of rank {}", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

/// The product of dims[begin, end).
inline std::int64_t product(const Shape& dims, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (std::size_t i = begin; i < end; ++i) result *= dims[i];
  return result;
}

/// A shape seen as three dimensions: what is before an axis, the axis, and what is after it.
struct Around {
  std::int64_t outer, size, inner;
};
inline Around around(const Shape& shape, std::size_t axis) {
  return {product(shape, 0, axis), shape[axis], product(shape, axis + 1, shape.size())};
}

/// The coefficients p and q of a layer's function: its attributes, or their defaults (OpDef::coefficients).
struct Coefficients {
  float p = 0, q = 0;
};
Coefficients coefficients_of(const Layer& layer);
/// Which of its two forms a Gelu has: with tanh, or with erf.
bool is_tanh_gelu(const Layer& layer);

/// NumPy's broadcasting of two shapes; nothing when they do not fit.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
/// The same, failing with a message.
Shape broadcast_or_fail(const InferContext& ctx, const Shape& a, const Shape& b);

/// Row-major strides in elements; 0 for dimensions of size 1 that `shape` broadcasts to `target`. As long as `target`.
std::vector<std::int64_t> broadcast_strides(const Shape& shape, const Shape& target);
/// Row-major strides in elements.
std::vector<std::int64_t> strides_of(const Shape& shape);

/// Output 0 has the shape of input 0.
void infer_same_as_first(InferContext& ctx);
/// Output 0 has the broadcast shape of all inputs, which have one type.
void infer_broadcast(InferContext& ctx);
/// As infer_broadcast, with type bool.
void infer_comparison(InferContext& ctx);

/// Fails unless input `i` is absent, of a type not known yet, or held as `type` (float16 and float32 are held alike).
/// For kernels that read several inputs as one C++ type.
void require_type(const InferContext& ctx, int i, DataType type);
/// As require_type, with the type of input 0, for each of `inputs`.
void require_type_of_first(const InferContext& ctx, std::initializer_list<int> inputs);

/// The type that an attribute (`to`, `dtype`) means, as ONNX numbers them (TensorProto.DataType in onnx.proto). Throws
/// Error, naming the layer: kUnsupported for one that ulpscope has no values of, kInvalidFile for a number that ONNX
/// does not define.
DataType data_type_from_onnx(const Layer& layer, std::int64_t number);
/// The type in the attribute `dtype`, or `otherwise` when it is absent.
DataType dtype_attribute(const Layer& layer, DataType otherwise);

/// An integral float as an index; what does not fit becomes one that lies far outside of any tensor, with room for
/// sums.
std::int64_t to_index(double value) noexcept;

}  // namespace ulpscope::ops
