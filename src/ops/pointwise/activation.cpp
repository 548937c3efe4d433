// Activation functions. A row is all that one without memory needs.
#include <cmath>
#include <numbers>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

// The two forms of the Gaussian error linear unit (Hendrycks and Gimpel, arXiv 1606.08415).
constexpr auto kGeluOf = []<typename T>(T x) { return T(0.5) * x * (T{1} + std::erf(x * T(0.70710678118654752440))); };
constexpr auto kGeluTanhOf = []<typename T>(T x) {
  return T(0.5) * x * (T{1} + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
};
constexpr auto kBiasGeluOf = [](auto x, auto bias) { return kGeluOf(x + bias); };
constexpr auto kBiasGeluTanhOf = [](auto x, auto bias) { return kGeluTanhOf(x + bias); };

Value gelu_derivative(Value x) {
  return 0.5 * (1 + erf(x * std::numbers::sqrt2 / 2)) +
         x * exp(square(x) * -0.5) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}
Value gelu_tanh_derivative(Value x) {
  constexpr double kFactor = 0.79788456080286535588, kCubic = 0.044715;
  const Value squared = square(x), t = tanh(x * (squared * (kFactor * kCubic) + kFactor));
  return 0.5 * (1 + t) + x * (1 - square(t)) * (squared * (1.5 * kCubic * kFactor) + 0.5 * kFactor);
}

void run_gelu(KernelContext& ctx) {
  const std::string form = ctx.attributes().text("approximate", "none");
  if (form != "none" && form != "tanh") ctx.fail("expected approximate 'none' or 'tanh', got '{}'", form);
  run_unary(ctx, form == "tanh" ? find_unary_loop<FloatTypes, decltype(kGeluTanhOf)>(ctx)
                                : find_unary_loop<FloatTypes, decltype(kGeluOf)>(ctx));
}

void infer_fast_gelu(InferContext& ctx) { ctx.has_input(1) ? infer_broadcast(ctx) : infer_same_as_first(ctx); }

void run_fast_gelu(KernelContext& ctx) {
  if (ctx.has_input(1)) return run_binary(ctx, find_binary_loop<FloatTypes, decltype(kBiasGeluTanhOf)>(ctx));
  run_unary(ctx, find_unary_loop<FloatTypes, decltype(kGeluTanhOf)>(ctx));
}

template <auto derivative>
void adjoint_bias_gelu(AdjointContext& ctx) {
  const Value x = ctx.has_input(1) ? input(ctx, 0) + input(ctx, 1) : input(ctx, 0);
  const Value g = gradient(ctx) * derivative(x);
  for (int i : {0, 1})
    if (ctx.wants(i)) set(ctx, i, g);
}

/// x sigmoid(p x).
constexpr auto kSwishOf = []<typename T>(T x, float p) { return x / (T{1} + std::exp(-T(p) * x)); };
constexpr auto kSwishDerivative = [](const Pointwise& p) {
  const Value x = p.x(), gate = sigmoid(x * p.p());
  return gate * (1 + x * (1 - gate) * p.p());
};

/// Integers are shrunk as the reals that they are.
constexpr auto kShrinkOf = []<typename T>(T x, float lambd, float bias) {
  using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;
  const Real value = static_cast<Real>(x);
  const Real result = value < -Real(lambd) ? value + Real(bias) : value > Real(lambd) ? value - Real(bias) : Real{0};
  if constexpr (std::is_integral_v<T>)
    return to_integer<T>(result);
  else
    return result;
};

void infer_prelu(InferContext& ctx) {
  infer_broadcast(ctx);
  const Shape& shape = ctx.shape(0);
  if (broadcast(shape, ctx.shape(1)) != shape)
    ctx.fail("a slope of shape {} cannot be broadcast to {}", to_string(ctx.shape(1)), to_string(shape));
  ctx.set_shape(0, shape);
}

void adjoint_prelu(AdjointContext& ctx) {
  const Value g = gradient(ctx), x = input(ctx, 0);
  if (ctx.wants(0)) ctx.set(0, (g * (1 + step(-x) * (input(ctx, 1) - 1))).id);
  if (ctx.wants(1)) set(ctx, 1, g * minimum(x, scalar(ctx, 0)));
}

void infer_swiglu(InferContext& ctx) {
  infer_broadcast(ctx);
  if (ctx.shape(0) != ctx.shape(1))
    ctx.fail("expected inputs of one shape, got {} and {}", to_string(ctx.shape(0)), to_string(ctx.shape(1)));
}

void adjoint_swiglu(AdjointContext& ctx) {
  const double alpha = Pointwise{ctx}.p();
  const Value g = gradient(ctx), x = input(ctx, 0), gate = sigmoid(x * alpha);
  if (ctx.wants(0)) ctx.set(0, (g * input(ctx, 1) * gate * (1 + x * (1 - gate) * alpha)).id);
  if (ctx.wants(1)) ctx.set(1, (g * x * gate).id);
}

template <typename T>
std::optional<T> limit(const KernelContext& ctx, int input, std::string_view attribute) {
  if (ctx.has_input(input)) {
    const Tensor& value = ctx.input(input);
    if (value.size() != 1 || value.type() != type_of<T>())
      ctx.fail("expected one element of type {} as input {}, got {}{}", name_of(type_of<T>()), input,
               name_of(value.type()), to_string(value.shape()));
    return value.data<T>()[0];
  }
  if (!ctx.attributes().has(attribute)) return std::nullopt;
  const float value = ctx.attributes().real(attribute, 0);
  if constexpr (std::is_integral_v<T>)
    return to_integer<T>(value);
  else
    return static_cast<T>(value);
}

void infer_clip(InferContext& ctx) {
  require_type_of_first(ctx, {1, 2});
  ctx.set_shape(0, ctx.shape(0));
}

void run_clip(KernelContext& ctx) {
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    using Limits = std::numeric_limits<T>;
    const T low = limit<T>(ctx, 1, "min").value_or(Limits::lowest()),
            high = limit<T>(ctx, 2, "max").value_or(Limits::max());
    const T* in = ctx.input(0).data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(ctx.input(0).size(), kElementsPerTask, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        // At a limit, the limit's sign of zero; a limit that is NaN makes everything NaN. As in the fused kernels.
        const T raised = in[i] > low || in[i] != in[i] ? in[i] : low;
        out[i] = raised < high || raised != raised ? raised : high;
      }
    });
  });
}

void adjoint_clip(AdjointContext& ctx) {
  const auto bound = [&](int i, const char* name) -> std::optional<Value> {
    if (ctx.has_input(i)) return input(ctx, i);
    if (!ctx.attributes().has(name)) return std::nullopt;
    return scalar(ctx, static_cast<double>(ctx.attributes().real(name, 0)));
  };
  // 1 where y lies inside of the limits, by what it is: y is at a limit otherwise.
  const auto low = bound(1, "min"), high = bound(2, "max");
  const Value g = gradient(ctx), y = output(ctx);
  if (ctx.wants(0)) {
    Value result = g;
    if (low) result = result * sign(y - *low);
    if (high) result = result * sign(*high - y);
    ctx.set(0, result.id);
  }
  if (ctx.wants(1)) set(ctx, 1, g * step(*low - input(ctx, 0)));
  if (ctx.wants(2)) set(ctx, 2, g * step(input(ctx, 0) - *high));
}

}  // namespace

bool is_tanh_gelu(const Layer& layer) {
  return layer.op->run == run_fast_gelu || layer.attributes.text("approximate", "none") == "tanh";
}

OpTable rectifiers() {
  using F = Function;
  using P = const Pointwise&;
  return {
      // Celu, ai.onnx 12, 28: x, alpha * (e^(x / alpha) - 1) below 0.
      unary<FloatTypes>(
          {.name = "Celu", .since_version = 12, .function = F::kCelu, .coefficients = {{{"alpha", 1}}}},
          []<typename T>(T x, float alpha) { return x < 0 ? T(alpha) * std::expm1(x / T(alpha)) : x; },
          [](P p) { return 1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0)) / p.p()) - 1); }),
      // Elu, ai.onnx 1, 6, 22: x, alpha * (e^x - 1) below 0.
      unary<FloatTypes>(
          {.name = "Elu", .function = F::kElu, .coefficients = {{{"alpha", 1}}}},
          [](auto x, float alpha) { return x < 0 ? decltype(x)(alpha) * std::expm1(x) : x; },
          [](P p) { return 1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0))) * p.p() - 1); }),
      // LeakyRelu, ai.onnx 1, 6, 16: x, scaled by alpha below 0.
      unary<FloatTypes>(
          {.name = "LeakyRelu", .function = F::kLeakyRelu, .coefficients = {{{"alpha", 0.01F}}}},
          [](auto x, float alpha) { return x < 0 ? decltype(x)(alpha) * x : x; },
          [](P p) { return 1 + step(-p.x()) * (p.p() - 1); }),
      // Relu, ai.onnx 1, 6, 13, 14: max(0, x); integers from opset 14. NaN stays NaN, and -0 becomes 0, so that
      // rounding before is rounding after.
      unary<TypeList<float, double, std::int8_t, std::int16_t, std::int32_t, std::int64_t>>(
          {.name = "Relu", .function = F::kRelu, .exactness = Exactness::kCommutes},
          [](auto x) { return x <= decltype(x){0} ? decltype(x){0} : x; }, [](P p) { return sign(p.y()); }),
      // Selu, ai.onnx 1, 6, 22: gamma * x, gamma * alpha * (e^x - 1) up to 0.
      unary<FloatTypes>(
          {.name = "Selu",
           .function = F::kSelu,
           .coefficients = {{{"alpha", 1.67326319217681884765625F}, {"gamma", 1.05070102214813232421875F}}}},
          []<typename T>(T x, float alpha, float gamma) {
            return x > 0 ? T(gamma) * x : T(gamma) * (T(alpha) * std::expm1(x));
          },
          [](P p) { return (1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0))) * p.p() - 1)) * p.q(); }),
      // Shrink, ai.onnx 9: moves x towards 0 by a bias outside of [-lambd, lambd]; 0 within.
      unary<NumericTypes>({.name = "Shrink", .since_version = 9, .coefficients = {{{"lambd", 0.5F}, {"bias", 0}}}},
                          kShrinkOf, [](P p) { return step(p.x() - p.p()) + step(-p.x() - p.p()); }),
      // ThresholdedRelu, ai.onnx 10, 22: x above alpha, else 0.
      unary<FloatTypes>(
          {.name = "ThresholdedRelu",
           .since_version = 10,
           .function = F::kThresholdedRelu,
           .coefficients = {{{"alpha", 1}}}},
          [](auto x, float alpha) { return x > decltype(x)(alpha) ? x : decltype(x){0}; },
          [](P p) { return step(p.x() - p.p()); }),
      // PRelu, ai.onnx 1, 6, 7, 9, 16: x, scaled by a slope below 0 that is broadcast to x.
      binary<WideTypes>(
          {.name = "PRelu", .function = F::kPRelu, .infer = infer_prelu},
          [](auto x, auto slope) { return x < decltype(x){0} ? times(x, slope) : x; }, adjoint_prelu),
      // Clip, ai.onnx 1, 6 (limits: attributes), 11, 12, 13 (limits: inputs): min(max(x, low), high); NaN stays NaN.
      // A limit that is left out is the largest number: infinities do not stay.
      make_op({.name = "Clip",
               .inputs = {1, 3},
               .types = {kNumbers},
               .kind = OpKind::kPointwise,
               .function = F::kClip,
               .exactness = Exactness::kSelects,
               .weights = 0b110},
              infer_clip, run_clip, adjoint_clip),
  };
}

OpTable gelus() {
  using F = Function;
  using P = const Pointwise&;
  return {
      // QuickGelu, com.microsoft 1: x * sigmoid(alpha * x).
      unary<FloatTypes>({.name = "QuickGelu",
                         .domain = "com.microsoft",
                         .function = F::kSwish,
                         .coefficients = {{{"alpha", 1.702F}}}},
                        kSwishOf, kSwishDerivative),
      // SwiGLU, ai.onnx 28: a * sigmoid(alpha * a) * b for a gate a and values b of one shape.
      binary<FloatTypes>(
          {.name = "SwiGLU", .since_version = 28, .coefficients = {{{"alpha", 1}}}, .infer = infer_swiglu},
          [](auto gate, auto value, float alpha) { return kSwishOf(gate, alpha) * value; }, adjoint_swiglu),
      // Gelu, ai.onnx 20: x * Phi(x), exact or with the tanh approximation.
      make_op(
          {.name = "Gelu", .since_version = 20, .types = {kFloats}, .kind = OpKind::kPointwise, .function = F::kGelu},
          infer_same_as_first, run_gelu, pointwise_adjoint<[](P p) {
            return is_tanh_gelu(p.ctx.layer()) ? gelu_tanh_derivative(p.x()) : gelu_derivative(p.x());
          }>),
      // Gelu, com.microsoft 1: the exact one, as ONNX Runtime's optimizer writes it.
      make_op({.name = "Gelu",
               .domain = "com.microsoft",
               .types = {kFloats},
               .kind = OpKind::kPointwise,
               .function = F::kGelu},
              infer_same_as_first, run_gelu, pointwise_adjoint<[](P p) { return gelu_derivative(p.x()); }>),
      // BiasGelu, com.microsoft 1: Gelu of x plus a bias along the last axis.
      binary<FloatTypes>({.name = "BiasGelu", .domain = "com.microsoft", .function = F::kBiasGelu}, kBiasGeluOf,
                         adjoint_bias_gelu<gelu_derivative>),
      // FastGelu, com.microsoft 1: Gelu with the tanh approximation of x plus an optional bias.
      make_op({.name = "FastGelu",
               .domain = "com.microsoft",
               .inputs = {1, 2},
               .types = {kFloats},
               .kind = OpKind::kPointwise,
               .function = F::kBiasGelu},
              infer_fast_gelu, run_fast_gelu, adjoint_bias_gelu<gelu_tanh_derivative>),
  };
}

OpTable sigmoids() {
  using F = Function;
  using P = const Pointwise&;
  return {
      // HardSigmoid, ai.onnx 1, 6, 22: max(0, min(1, alpha * x + beta)).
      unary<FloatTypes>(
          {.name = "HardSigmoid", .function = F::kHardSigmoid, .coefficients = {{{"alpha", 0.2F}, {"beta", 0.5F}}}},
          []<typename T>(T x, float alpha, float beta) { return std::clamp(T(alpha) * x + T(beta), T{0}, T{1}); },
          [](P p) { return sign(p.y() * (1 - p.y())) * p.p(); }),
      // HardSwish, ai.onnx 14, 22: x * max(0, min(1, x / 6 + 0.5)).
      unary<FloatTypes>(
          {.name = "HardSwish", .since_version = 14, .function = F::kHardSwish},
          []<typename T>(T x) { return x * std::clamp(x * T(1.0 / 6) + T(0.5), T{0}, T{1}); },
          [](P p) {  // The gate and its derivative; it is closed or open outside of [-3, 3].
            const Value x = p.x(),
                        gate{&p.ctx, p.ctx.add("HardSigmoid", {x.id}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}})};
            return gate + x * sign(gate * (1 - gate)) * (1.0 / 6);
          }),
      // Mish, ai.onnx 18, 22: x * tanh(softplus(x)).
      unary<FloatTypes>(
          {.name = "Mish", .since_version = 18, .function = F::kMish},
          []<typename T>(T x) {
            const T softplus = (x > T{0} ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
            return x * std::tanh(softplus);
          },
          [](P p) {
            const Value x = p.x(), t = tanh(x.with("Softplus"));
            return t + x * (1 - square(t)) * sigmoid(x);
          }),
      // Sigmoid, ai.onnx 1, 6, 13: 1 / (1 + e^-x).
      unary<FloatTypes>(
          {.name = "Sigmoid", .function = F::kSigmoid},
          [](auto x) { return decltype(x){1} / (decltype(x){1} + std::exp(-x)); },
          [](P p) { return p.y() * (1 - p.y()); }),
      // Softplus, ai.onnx 1, 22: ln(1 + e^x), in a form that does not overflow.
      unary<FloatTypes>(
          {.name = "Softplus", .function = F::kSoftplus},
          []<typename T>(T x) { return (x > T{0} ? x : T{0}) + std::log1p(std::exp(-std::abs(x))); },
          [](P p) { return sigmoid(p.x()); }),
      // Softsign, ai.onnx 1, 22: x / (1 + |x|).
      unary<FloatTypes>(
          {.name = "Softsign", .function = F::kSoftsign}, [](auto x) { return x / (decltype(x){1} + std::abs(x)); },
          [](P p) { return 1 / square(1 + abs(p.x())); }),
      // Swish, ai.onnx 24: x * sigmoid(alpha * x).
      unary<FloatTypes>({.name = "Swish", .since_version = 24, .function = F::kSwish, .coefficients = {{{"alpha", 1}}}},
                        kSwishOf, kSwishDerivative),
      // Tanh, ai.onnx 1, 6, 13: the hyperbolic tangent.
      unary<FloatTypes>(
          {.name = "Tanh", .function = F::kTanh}, [](auto x) { return std::tanh(x); },
          [](P p) { return 1 - square(p.y()); }),
  };
}

}  // namespace ulpscope::ops
