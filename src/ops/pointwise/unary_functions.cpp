// Functions of one operand that no network calls an activation. A row is all that such an operator needs.
#include <cmath>
#include <numbers>

#include "ops/elementwise.h"

namespace ulpscope::ops {

OpTable trigonometry() {
  using F = Function;
  using P = const Pointwise&;
  return {
      // Acos, ai.onnx 7, 22: the arc cosine in radians.
      unary<FloatTypes>(
          {.name = "Acos", .since_version = 7, .function = F::kAcos}, [](auto x) { return std::acos(x); },
          [](P p) { return -1.0 / sqrt(1 - square(p.x())); }),
      // Acosh, ai.onnx 9, 22: the inverse hyperbolic cosine.
      unary<FloatTypes>(
          {.name = "Acosh", .since_version = 9, .function = F::kAcosh}, [](auto x) { return std::acosh(x); },
          [](P p) { return 1 / sqrt(square(p.x()) - 1); }),
      // Asin, ai.onnx 7, 22: the arc sine in radians.
      unary<FloatTypes>(
          {.name = "Asin", .since_version = 7, .function = F::kAsin}, [](auto x) { return std::asin(x); },
          [](P p) { return 1 / sqrt(1 - square(p.x())); }),
      // Asinh, ai.onnx 9, 22: the inverse hyperbolic sine.
      unary<FloatTypes>(
          {.name = "Asinh", .since_version = 9, .function = F::kAsinh}, [](auto x) { return std::asinh(x); },
          [](P p) { return 1 / sqrt(square(p.x()) + 1); }),
      // Atan, ai.onnx 7, 22: the arc tangent in radians.
      unary<FloatTypes>(
          {.name = "Atan", .since_version = 7, .function = F::kAtan}, [](auto x) { return std::atan(x); },
          [](P p) { return 1 / (square(p.x()) + 1); }),
      // Atanh, ai.onnx 9, 22: the inverse hyperbolic tangent.
      unary<FloatTypes>(
          {.name = "Atanh", .since_version = 9, .function = F::kAtanh}, [](auto x) { return std::atanh(x); },
          [](P p) { return 1 / (1 - square(p.x())); }),
      // Cos, ai.onnx 7, 22: the cosine of an angle in radians.
      unary<FloatTypes>(
          {.name = "Cos", .since_version = 7, .function = F::kCos}, [](auto x) { return std::cos(x); },
          [](P p) { return -sin(p.x()); }),
      // Cosh, ai.onnx 9, 22: the hyperbolic cosine.
      unary<FloatTypes>(
          {.name = "Cosh", .since_version = 9, .function = F::kCosh}, [](auto x) { return std::cosh(x); },
          [](P p) { return sinh(p.x()); }),
      // Sin, ai.onnx 7, 22: the sine of an angle in radians.
      unary<FloatTypes>(
          {.name = "Sin", .since_version = 7, .function = F::kSin}, [](auto x) { return std::sin(x); },
          [](P p) { return cos(p.x()); }),
      // Sinh, ai.onnx 9, 22: the hyperbolic sine.
      unary<FloatTypes>(
          {.name = "Sinh", .since_version = 9, .function = F::kSinh}, [](auto x) { return std::sinh(x); },
          [](P p) { return cosh(p.x()); }),
      // Tan, ai.onnx 7, 22: the tangent of an angle in radians.
      unary<FloatTypes>(
          {.name = "Tan", .since_version = 7, .function = F::kTan}, [](auto x) { return std::tan(x); },
          [](P p) { return 1 + square(p.y()); }),
  };
}

OpTable unary_functions() {
  using F = Function;
  using P = const Pointwise&;
  return {
      // Abs, ai.onnx 1, 6, 13: |x|.
      unary<NumericTypes>(
          {.name = "Abs", .function = F::kAbs, .exactness = Exactness::kCommutes},
          []<typename T>(T x) {
            if constexpr (std::is_unsigned_v<T>)
              return x;
            else if constexpr (std::is_integral_v<T>)
              return x < 0 ? minus(T{0}, x) : x;
            else
              return std::abs(x);
          },
          [](P p) { return sign(p.x()); }),
      // Ceil, ai.onnx 1, 6, 13: the smallest integer that is not less than x.
      unary<FloatTypes>({.name = "Ceil", .function = F::kCeil}, [](auto x) { return std::ceil(x); }),
      // Erf, ai.onnx 9, 13: the error function.
      unary<FloatTypes>(
          {.name = "Erf", .since_version = 9, .function = F::kErf}, [](auto x) { return std::erf(x); },
          [](P p) { return exp(-square(p.x())) * (2 / std::sqrt(std::numbers::pi)); }),
      // Exp, ai.onnx 1, 6, 13: e^x.
      unary<FloatTypes>(
          {.name = "Exp", .function = F::kExp}, [](auto x) { return std::exp(x); }, [](P p) { return p.y(); }),
      // Floor, ai.onnx 1, 6, 13: the largest integer that is not more than x.
      unary<FloatTypes>({.name = "Floor", .function = F::kFloor}, [](auto x) { return std::floor(x); }),
      // Log, ai.onnx 1, 6, 13: the natural logarithm.
      with_adjoint(unary<FloatTypes>({.name = "Log", .function = F::kLog}, [](auto x) { return std::log(x); }),
                   [](AdjointContext& ctx) { ctx.set(0, (gradient(ctx) / input(ctx, 0)).id); }),
      // Neg, ai.onnx 1, 6, 13: -x.
      with_adjoint(unary<NumericTypes>({.name = "Neg", .function = F::kNeg, .exactness = Exactness::kCommutes},
                                       []<typename T>(T x) {
                                         if constexpr (std::is_integral_v<T>)
                                           return minus(T{0}, x);
                                         else
                                           return -x;
                                       }),
                   [](AdjointContext& ctx) { ctx.set(0, (-gradient(ctx)).id); }),
      // Reciprocal, ai.onnx 1, 6, 13: 1 / x.
      unary<FloatTypes>(
          {.name = "Reciprocal", .function = F::kReciprocal}, [](auto x) { return decltype(x){1} / x; },
          [](P p) { return -square(p.y()); }),
      // Round, ai.onnx 11, 22: the nearest integer, ties to even.
      unary<FloatTypes>({.name = "Round", .since_version = 11, .function = F::kRound},
                        [](auto x) { return std::nearbyint(x); }),
      // Sign, ai.onnx 9, 13: -1, 0 or 1; NaN stays NaN.
      unary<NumericTypes>({.name = "Sign", .since_version = 9, .function = F::kSign},
                          []<typename T>(T x) { return x != x ? x : static_cast<T>((x > T{0}) - (x < T{0})); }),
      // Sqrt, ai.onnx 1, 6, 13: the square root.
      unary<FloatTypes>(
          {.name = "Sqrt", .function = F::kSqrt}, [](auto x) { return std::sqrt(x); }, [](P p) { return 0.5 / p.y(); }),
  };
}

}  // namespace ulpscope::ops
