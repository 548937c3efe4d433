// Formulas for adjoints: tensors of the adjoint network with operators, so that derivatives read as in a book.
#pragma once

#include "graph/adjoint.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// A tensor of the adjoint network. Cheap to copy; the context outlives it.
struct Value {
  AdjointContext* ctx;
  TensorId id;

  const Shape& shape() const { return ctx->shape(id); }
  Value with(std::string_view op) const { return {ctx, ctx->add(op, {id})}; }
  Value with(std::string_view op, Value other) const { return {ctx, ctx->add(op, {id, other.id})}; }
  Value with(std::string_view op, double other) const { return with(op, Value{ctx, ctx->scalar(other)}); }
};

inline Value operator+(Value a, Value b) { return a.with("Add", b); }
inline Value operator-(Value a, Value b) { return a.with("Sub", b); }
inline Value operator*(Value a, Value b) { return a.with("Mul", b); }
inline Value operator/(Value a, Value b) { return a.with("Div", b); }
inline Value operator+(Value a, double b) { return b == 0 ? a : a.with("Add", b); }
inline Value operator-(Value a, double b) { return b == 0 ? a : a.with("Sub", b); }
inline Value operator*(Value a, double b) { return b == 1 ? a : a.with("Mul", b); }
inline Value operator/(Value a, double b) { return b == 1 ? a : a.with("Div", b); }
inline Value operator+(double a, Value b) { return b + a; }
inline Value operator*(double a, Value b) { return b * a; }
inline Value operator-(double a, Value b) { return Value{b.ctx, b.ctx->scalar(a)}.with("Sub", b); }
inline Value operator/(double a, Value b) { return Value{b.ctx, b.ctx->scalar(a)}.with("Div", b); }
inline Value operator-(Value a) { return a.with("Neg"); }

inline Value exp(Value x) { return x.with("Exp"); }
inline Value log(Value x) { return x.with("Log"); }
inline Value sqrt(Value x) { return x.with("Sqrt"); }
inline Value abs(Value x) { return x.with("Abs"); }
inline Value sign(Value x) { return x.with("Sign"); }
inline Value tanh(Value x) { return x.with("Tanh"); }
inline Value sigmoid(Value x) { return x.with("Sigmoid"); }
inline Value sin(Value x) { return x.with("Sin"); }
inline Value cos(Value x) { return x.with("Cos"); }
inline Value sinh(Value x) { return x.with("Sinh"); }
inline Value cosh(Value x) { return x.with("Cosh"); }
inline Value erf(Value x) { return x.with("Erf"); }
inline Value square(Value x) { return x * x; }
inline Value power(Value x, double exponent) { return x.with("Pow", exponent); }
/// 1 where x > 0, else 0: part of pointwise programs, which comparisons are not.
inline Value step(Value x) { return sign(x).with("Relu"); }
inline Value maximum(Value a, Value b) { return a.with("Max", b); }
inline Value minimum(Value a, Value b) { return a.with("Min", b); }

inline Value input(AdjointContext& ctx, int i) { return {&ctx, ctx.input(i)}; }
inline Value output(AdjointContext& ctx, int o = 0) { return {&ctx, ctx.output(o)}; }
/// REQUIRES: a gradient arrives at output `o`.
inline Value gradient(AdjointContext& ctx, int o = 0) { return {&ctx, ctx.gradient(o)}; }
inline Value scalar(AdjointContext& ctx, double value) { return {&ctx, ctx.scalar(value)}; }

inline Value reshape(Value x, const Shape& to) { return {x.ctx, x.ctx->reshape(x.id, to)}; }
inline Value broadcast_to(Value x, const Shape& to, double factor = 1) {
  return {x.ctx, x.ctx->broadcast_to(x.id, to, factor)};
}
inline Value sum_to(Value x, const Shape& to) { return {x.ctx, x.ctx->sum_to(x.id, to)}; }
Value transpose(Value x, std::vector<std::int64_t> perm);
/// ReduceSum or ReduceMean; reduced dimensions stay with size 1. No layer without axes.
Value reduce(std::string_view op, Value x, const std::vector<std::int64_t>& axes);
inline Value sum(Value x, const std::vector<std::int64_t>& axes) { return reduce("ReduceSum", x, axes); }
inline Value mean(Value x, const std::vector<std::int64_t>& axes) { return reduce("ReduceMean", x, axes); }
/// Elements [begin, end) along an axis; no layer when that is all of them.
Value slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end);
/// Zeros around; no layer when there are none. Negative pads crop. Both have one entry per dimension.
Value pad(Value x, const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& end);
Value concat(AdjointContext& ctx, std::span<const Value> parts, std::int64_t axis);
/// Zeros of this shape, to which `updates` are added at the places that `indices` name along an axis.
Value scatter_add(Value updates, TensorId indices, const Shape& shape, std::size_t axis);
/// `condition` is a boolean tensor.
inline Value where(Value condition, Value yes, Value no) {
  return {condition.ctx, condition.ctx->add("Where", {condition.id, yes.id, no.id})};
}
inline Value matmul(Value a, Value b) { return a.with("MatMul", b); }
/// Swaps the last two dimensions.
Value transposed(Value x);
/// An integer or boolean tensor as floats.
Value to_float(Value x);
/// A tensor of the float type of the adjoint, zeros, of any shape.
Value zeros(AdjointContext& ctx, const Shape& shape);

/// Gives an input the gradient, summed over the dimensions along which the input was broadcast.
inline void set(AdjointContext& ctx, int i, Value gradient) { ctx.set(i, ctx.sum_to(gradient.id, ctx.input_shape(i))); }

/// The axis attribute or value in [0, rank).
inline std::int64_t positive_axis(std::int64_t axis, std::size_t rank) {
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}
/// All axes from `first` on.
std::vector<std::int64_t> axes_after(std::int64_t first, std::size_t rank);

/// What the derivative of a pointwise operator of one input may use. Values that are not asked for are not read.
struct Pointwise {
  AdjointContext& ctx;
  Value x() const { return input(ctx, 0); }
  Value y() const { return output(ctx); }
  /// The coefficients of the layer's function.
  double p() const { return static_cast<double>(coefficients_of(ctx.layer()).p); }
  double q() const { return static_cast<double>(coefficients_of(ctx.layer()).q); }
};

/// The adjoint of y = f(x), element by element. `derivative` is a stateless function of Pointwise that returns dy/dx.
template <auto derivative>
void pointwise_adjoint(AdjointContext& ctx) {
  ctx.set(0, (gradient(ctx) * derivative(Pointwise{ctx})).id);
}

/// The adjoint of an operator that only moves the elements of input 0 to another shape.
inline void view_adjoint(AdjointContext& ctx) { ctx.set(0, ctx.reshape(ctx.gradient(0), ctx.input_shape(0))); }

}  // namespace ulpscope::ops
