#include "backend/plain/instructions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/rounding.h"

namespace ulpscope::plain {
namespace {

using I = Instruction;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
/// NaN wins.
double smaller(double a, double b) { return a < b || std::isnan(a) ? a : b; }
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }
double clamp(double x, double low, double high) { return smaller(larger(x, low), high); }

double quantize(float x, float scale, bool is_unsigned) {
  float result;
  quantize_array(&x, &result, 1, scale, is_unsigned ? 0.0f : -128.0f, is_unsigned ? 255.0f : 127.0f, true);
  return static_cast<double>(result);
}

double elementary(I instruction, double x) {
  static const std::map<I, double (*)(double)> functions{
      {I::kCopy, [](double x) -> double { return x; }},
      {I::kNeg, [](double x) -> double { return -x; }},
      {I::kAbs, [](double x) -> double { return std::fabs(x); }},
      {I::kSign, [](double x) -> double { return x > 0   ? 1
                                                 : x < 0 ? -1
                                                         : x; }},
      {I::kReciprocal, [](double x) -> double { return 1 / x; }},
      {I::kSqrt, [](double x) -> double { return std::sqrt(x); }},
      {I::kRsqrt, [](double x) -> double { return 1 / std::sqrt(x); }},
      {I::kExp, [](double x) -> double { return std::exp(x); }},
      {I::kLog, [](double x) -> double { return std::log(x); }},
      {I::kErf, [](double x) -> double { return std::erf(x); }},
      {I::kTanh, [](double x) -> double { return std::tanh(x); }},
      {I::kSigmoid, [](double x) -> double { return sigmoid(x); }},
      {I::kSin, [](double x) -> double { return std::sin(x); }},
      {I::kCos, [](double x) -> double { return std::cos(x); }},
      {I::kTan, [](double x) -> double { return std::tan(x); }},
      {I::kAsin, [](double x) -> double { return std::asin(x); }},
      {I::kAcos, [](double x) -> double { return std::acos(x); }},
      {I::kAtan, [](double x) -> double { return std::atan(x); }},
      {I::kSinh, [](double x) -> double { return std::sinh(x); }},
      {I::kCosh, [](double x) -> double { return std::cosh(x); }},
      {I::kAsinh, [](double x) -> double { return std::asinh(x); }},
      {I::kAcosh, [](double x) -> double { return std::acosh(x); }},
      {I::kAtanh, [](double x) -> double { return std::atanh(x); }},
      {I::kFloor, [](double x) -> double { return std::floor(x); }},
      {I::kCeil, [](double x) -> double { return std::ceil(x); }},
      {I::kRound, [](double x) -> double { return std::nearbyint(x); }},
  };
  return functions.at(instruction)(x);
}

double activation(I instruction, double x, double p, double q) {
  static const std::map<I, double (*)(double, double, double)> functions{
      {I::kRelu, [](double x, double, double) -> double { return x <= 0 ? 0 : x; }},
      {I::kSquare, [](double x, double, double) -> double { return x * x; }},
      {I::kLeakyRelu, [](double x, double p, double) -> double { return x < 0 ? x * p : x; }},
      {I::kClip, [](double x, double p, double q) -> double { return clamp(x, p, q); }},
      {I::kHardSigmoid, [](double x, double p, double q) -> double { return clamp(x * p + q, 0, 1); }},
      {I::kHardSwish, [](double x, double, double) -> double { return x * clamp(x / 6 + 0.5, 0, 1); }},
      {I::kSoftplus, [](double x, double, double) -> double { return softplus(x); }},
      {I::kSoftsign, [](double x, double, double) -> double { return x / (1 + std::fabs(x)); }},
      {I::kMish, [](double x, double, double) -> double { return x * std::tanh(softplus(x)); }},
      {I::kElu, [](double x, double p, double) -> double { return x < 0 ? p * std::expm1(x) : x; }},
      {I::kSelu, [](double x, double p, double q) -> double { return x > 0 ? q * x : q * p * std::expm1(x); }},
      {I::kCelu, [](double x, double p, double) -> double { return larger(0, x) + smaller(0, p * std::expm1(x / p)); }},
      {I::kThresholdedRelu, [](double x, double p, double) -> double { return x > p ? x : 0; }},
      {I::kSwish, [](double x, double p, double) -> double { return x * sigmoid(p * x); }},
      {I::kGelu, [](double x, double, double) -> double { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {I::kGeluTanh,
       [](double x, double, double) -> double {
         return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
       }},
  };
  return functions.at(instruction)(x, p, q);
}

double binary(I instruction, double a, double b) {
  static const std::map<I, double (*)(double, double)> functions{
      {I::kAdd, [](double a, double b) -> double { return a + b; }},
      {I::kSub, [](double a, double b) -> double { return a - b; }},
      {I::kMul, [](double a, double b) -> double { return a * b; }},
      {I::kDiv, [](double a, double b) -> double { return a / b; }},
      {I::kPow, [](double a, double b) -> double { return std::pow(a, b); }},
      {I::kMin, [](double a, double b) -> double { return smaller(a, b); }},
      {I::kMax, [](double a, double b) -> double { return larger(a, b); }},
      {I::kPRelu, [](double a, double b) -> double { return a < 0 ? a * b : a; }},
  };
  return functions.at(instruction)(a, b);
}

}  // namespace

float apply(const Program::Value& v, float a, float b) {
  if (is_binary_instruction(v.instruction))
    return static_cast<float>(binary(v.instruction, static_cast<double>(a), static_cast<double>(b)));
  if (v.instruction == I::kFakeQuantize) return static_cast<float>(quantize(a, v.p, v.q != 0.0f));
  const auto x = static_cast<double>(a);
  const bool is_elementary = v.instruction <= I::kRound || v.instruction == I::kCopy || v.instruction == I::kRsqrt;
  return static_cast<float>(is_elementary
                                ? elementary(v.instruction, x)
                                : activation(v.instruction, x, static_cast<double>(v.p), static_cast<double>(v.q)));
}

float reduce(Instruction instruction, std::span<const float> row) {
  const double infinity = std::numeric_limits<double>::infinity();
  double result = instruction == I::kReduceMax ? -infinity : instruction == I::kReduceMin ? infinity : 0;
  for (float value : row) {
    const auto x = static_cast<double>(value);
    switch (instruction) {
      case I::kReduceMax:
        result = larger(result, x);
        break;
      case I::kReduceMin:
        result = smaller(result, x);
        break;
      case I::kReduceSumSquare:
        result += x * x;
        break;
      case I::kReduceL1:
        result += std::fabs(x);
        break;
      default:
        result += x;  // kReduceSum, kReduceMean
    }
  }
  const auto count = static_cast<double>(std::max<std::size_t>(row.size(), 1));
  return static_cast<float>(instruction == I::kReduceMean ? result / count : result);
}

}  // namespace ulpscope::plain
