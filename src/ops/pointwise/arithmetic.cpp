// Arithmetic on two or more operands with NumPy broadcasting; integers wrap around.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

/// Exact, wrapping around. 1 / x truncates for negative exponents; 0 to a negative power gives 0.
template <typename T>
T integer_power(T base, std::int64_t exponent) noexcept {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  T result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = times(result, base);
    base = times(base, base);
  }
  return result;
}

void infer_pow(InferContext& ctx) {
  ctx.set_shape(0, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(1)));
}

void run_pow(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  const auto run = [&](DataType exponent, BinaryLoop loop) {
    map_binary(a, b.type() == exponent ? b : b.cast(exponent), ctx.output(0), loop);
  };
  // Squares and cubes are products, as in programs: std::pow may be a unit in the last place off.
  const auto real = [](auto x, auto y) { return y == 2 ? x * x : y == 3 ? x * x * x : std::pow(x, y); };
  const auto rounded = [](auto x, double y) { return to_integer<decltype(x)>(std::pow(static_cast<double>(x), y)); };
  const auto exact = [](auto x, std::int64_t y) { return integer_power(x, y); };
  with_type(TypeList<float, double, std::int32_t, std::int64_t>{}, ctx, a.type(), [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      run(type_of<T>(), binary_loop<T, T, decltype(real)>);
    else if (is_floating(b.type()))
      run(DataType::kFloat64, binary_loop<T, double, decltype(rounded)>);
    else
      run(DataType::kInt64, binary_loop<T, std::int64_t, decltype(exact)>);
  });
}

void adjoint_pow(AdjointContext& ctx) {
  const Value g = gradient(ctx), x = input(ctx, 0);
  const Tensor* exponent = ctx.input_value(1);
  if (exponent != nullptr && exponent->size() == 1) {
    const double b = exponent->cast(DataType::kFloat64).data<double>()[0];
    if (b == 0) return;
    if (ctx.wants(0)) set(ctx, 0, b == 1 ? g : b == 2 ? g * (x * 2) : g * (power(x, b - 1) * b));
    return;
  }
  Value b = input(ctx, 1);
  const DataType type = exponent != nullptr ? exponent->type() : ctx.type();
  if (ctx.wants(0)) {
    if (!ctx.wants(1) && (exponent == nullptr || !is_floating(type))) b = to_float(b);
    const Value less = b - 1;
    set(ctx, 0, g * b * Value{&ctx, ctx.add("Pow", {x.id, less.id})});
  }
  // 0^b does not change with b > 0; below 0 there is no derivative.
  if (ctx.wants(1)) {
    const Value none = scalar(ctx, 0), positive{&ctx, ctx.add("Greater", {x.id, none.id})};
    set(ctx, 1, g * output(ctx) * where(positive, log(where(positive, x, scalar(ctx, 1))), none));
  }
}

template <typename T>
T remainder_like_dividend(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
}

template <typename T>
T remainder_like_divisor(T a, T b) noexcept {
  const T remainder = remainder_like_dividend(a, b);
  if constexpr (std::is_unsigned_v<T>)
    return remainder;
  else {
    if (remainder != 0) return (remainder < 0) != (b < 0) ? plus(remainder, b) : remainder;
    if constexpr (std::is_floating_point_v<T>)
      return std::copysign(T{0}, b);
    else
      return 0;
  }
}

void run_mod(KernelContext& ctx) {
  const auto like_dividend = [](auto a, auto b) { return remainder_like_dividend(a, b); };
  const auto like_divisor = [](auto a, auto b) { return remainder_like_divisor(a, b); };
  run_binary(ctx, ctx.attributes().integer("fmod", 0) != 0
                      ? find_binary_loop<NumericTypes, decltype(like_dividend)>(ctx)
                      : find_binary_loop<NumericTypes, decltype(like_divisor)>(ctx));
}

void run_mean(KernelContext& ctx) {
  const auto sum = [](auto a, auto b) { return a + b; };
  const auto share = [](auto x, float count) { return x / static_cast<decltype(x)>(count); };
  run_nary(ctx, find_binary_loop<FloatTypes, decltype(sum)>(ctx));
  map_unary(ctx.output(0), ctx.output(0), find_unary_loop<FloatTypes, decltype(share)>(ctx),
            {static_cast<float>(ctx.num_inputs())});
}

/// Inputs of Max and Min that are the result share its gradient.
void adjoint_extreme(AdjointContext& ctx) {
  const Value y = output(ctx);
  std::vector<Value> chosen;
  for (int i = 0; i < ctx.num_inputs(); ++i) chosen.push_back(1 - abs(sign(input(ctx, i) - y)));
  Value count = chosen[0];
  for (std::size_t i = 1; i < chosen.size(); ++i) count = count + chosen[i];
  const Value share = gradient(ctx) / count;
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, share * chosen[static_cast<std::size_t>(i)]);
}

void adjoint_div(AdjointContext& ctx) {
  const Value share = gradient(ctx) / input(ctx, 1);
  if (ctx.wants(0)) set(ctx, 0, share);
  if (ctx.wants(1)) set(ctx, 1, -sum_to(share * output(ctx), ctx.input_shape(1)));
}

/// y = a - k b with a whole k.
void adjoint_mod(AdjointContext& ctx) {
  const Value g = gradient(ctx);
  if (ctx.wants(0)) set(ctx, 0, g);
  if (ctx.wants(1)) set(ctx, 1, -g * ((input(ctx, 0) - output(ctx)) / input(ctx, 1)).with("Round"));
}

/// Every input that asks for one gets this gradient.
void set_all(AdjointContext& ctx, Value gradient) {
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, gradient);
}

}  // namespace

OpTable arithmetic() {
  using F = Function;
  return {
      // Add, ai.onnx 1, 6, 7, 13, 14: the sum.
      binary<NumericTypes>(
          {.name = "Add", .function = F::kAdd}, [](auto a, auto b) { return plus(a, b); },
          [](AdjointContext& ctx) { set_all(ctx, gradient(ctx)); }),
      // Sub, ai.onnx 1, 6, 7, 13, 14: the difference.
      binary<NumericTypes>(
          {.name = "Sub", .function = F::kSub}, [](auto a, auto b) { return minus(a, b); },
          [](AdjointContext& ctx) {
            if (ctx.wants(0)) set(ctx, 0, gradient(ctx));
            if (ctx.wants(1)) set(ctx, 1, -sum_to(gradient(ctx), ctx.input_shape(1)));
          }),
      // Mul, ai.onnx 1, 6, 7, 13, 14: the product.
      binary<NumericTypes>(
          {.name = "Mul", .function = F::kMul}, [](auto a, auto b) { return times(a, b); },
          [](AdjointContext& ctx) {
            for (int i : {0, 1})
              if (ctx.wants(i)) set(ctx, i, gradient(ctx) * input(ctx, 1 - i));
          }),
      // Div, ai.onnx 1, 6, 7, 13, 14: the quotient; integers truncate, a division by zero gives 0.
      binary<NumericTypes>(
          {.name = "Div", .function = F::kDiv}, [](auto a, auto b) { return divided(a, b); }, adjoint_div),
      // Pow, ai.onnx 1, 7, 12, 13, 15: a to the power of b. The types may differ; the result has that of the base.
      make_op({.name = "Pow",
               .inputs = {2, 2},
               .types = {kFloats | kIndices, kNumbers},
               .kind = OpKind::kPointwise,
               .function = F::kPow},
              infer_pow, run_pow, adjoint_pow),
      // Mod, ai.onnx 10, 13, 28: the remainder of a / b with the sign of b or, with fmod, that of a. Integers: 0 for b
      // = 0.
      {.name = "Mod",
       .since_version = 10,
       .inputs = {2, 2},
       .types = {kNumbers},
       .kind = OpKind::kPointwise,
       .infer = infer_broadcast,
       .run = run_mod,
       .adjoint = adjoint_mod},
      // Max, ai.onnx 1, 6, 8, 12, 13: the largest of the inputs; NaN wins.
      nary<NumericTypes>(
          {.name = "Max", .function = F::kMax, .exactness = Exactness::kSelects},
          [](auto a, auto b) { return larger(a, b); }, adjoint_extreme),
      // Min, ai.onnx 1, 6, 8, 12, 13: the smallest of the inputs; NaN wins.
      nary<NumericTypes>(
          {.name = "Min", .function = F::kMin, .exactness = Exactness::kSelects},
          [](auto a, auto b) { return smaller(a, b); }, adjoint_extreme),
      // Sum, ai.onnx 1, 6, 8, 13: the sum of the inputs.
      nary<FloatTypes>(
          {.name = "Sum", .function = F::kSum}, [](auto a, auto b) { return plus(a, b); },
          [](AdjointContext& ctx) { set_all(ctx, gradient(ctx)); }),
      // Mean, ai.onnx 1, 6, 8, 13: the mean of the inputs.
      {.name = "Mean",
       .inputs = {1, kAnyNumber},
       .types = {kFloats},
       .kind = OpKind::kPointwise,
       .function = F::kMean,
       .infer = infer_broadcast,
       .run = run_mean,
       .adjoint =
           [](AdjointContext& ctx) { set_all(ctx, gradient(ctx) * (1 / static_cast<double>(ctx.num_inputs()))); }},
  };
}

}  // namespace ulpscope::ops
