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
  switch (instruction) {
    case I::kCopy:
      return x;
    case I::kNeg:
      return -x;
    case I::kAbs:
      return std::fabs(x);
    case I::kSign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case I::kReciprocal:
      return 1 / x;
    case I::kSqrt:
      return std::sqrt(x);
    case I::kRsqrt:
      return 1 / std::sqrt(x);
    case I::kExp:
      return std::exp(x);
    case I::kLog:
      return std::log(x);
    case I::kErf:
      return std::erf(x);
    case I::kTanh:
      return std::tanh(x);
    case I::kSigmoid:
      return sigmoid(x);
    case I::kSin:
      return std::sin(x);
    case I::kCos:
      return std::cos(x);
    case I::kTan:
      return std::tan(x);
    case I::kAsin:
      return std::asin(x);
    case I::kAcos:
      return std::acos(x);
    case I::kAtan:
      return std::atan(x);
    case I::kSinh:
      return std::sinh(x);
    case I::kCosh:
      return std::cosh(x);
    case I::kAsinh:
      return std::asinh(x);
    case I::kAcosh:
      return std::acosh(x);
    case I::kAtanh:
      return std::atanh(x);
    case I::kFloor:
      return std::floor(x);
    case I::kCeil:
      return std::ceil(x);
    default:
      return std::nearbyint(x);  // kRound
  }
}

double activation(I instruction, double x, double p, double q) {
  switch (instruction) {
    case I::kRelu:
      return x <= 0 ? 0 : x;
    case I::kSquare:
      return x * x;
    case I::kLeakyRelu:
      return x < 0 ? x * p : x;
    case I::kClip:
      return clamp(x, p, q);
    case I::kHardSigmoid:
      return clamp(x * p + q, 0, 1);
    case I::kHardSwish:
      return x * clamp(x / 6 + 0.5, 0, 1);
    case I::kSoftplus:
      return softplus(x);
    case I::kSoftsign:
      return x / (1 + std::fabs(x));
    case I::kMish:
      return x * std::tanh(softplus(x));
    case I::kElu:
      return x < 0 ? p * std::expm1(x) : x;
    case I::kSelu:
      return x > 0 ? q * x : q * p * std::expm1(x);
    case I::kCelu:
      return larger(0, x) + smaller(0, p * std::expm1(x / p));
    case I::kThresholdedRelu:
      return x > p ? x : 0;
    case I::kSwish:
      return x * sigmoid(p * x);
    case I::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    default:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));  // kGeluTanh
  }
}

double binary(I instruction, double a, double b) {
  switch (instruction) {
    case I::kAdd:
      return a + b;
    case I::kSub:
      return a - b;
    case I::kMul:
      return a * b;
    case I::kDiv:
      return a / b;
    case I::kPow:
      return std::pow(a, b);
    case I::kMin:
      return smaller(a, b);
    case I::kMax:
      return larger(a, b);
    default:
      return a < 0 ? a * b : a;  // kPRelu
  }
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
