#include "backend/plain/instructions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/quantized.h"
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
  const Quantization by = to_bytes(scale, is_unsigned);
  quantize_array(&x, &result, 1, scale, by.lowest(), by.largest(), true);
  return static_cast<double>(result);
}

double value_of(const Program::Value& v, double x, double y) {
  const auto p = static_cast<double>(v.p), q = static_cast<double>(v.q);
  switch (v.instruction) {
#define ULPSCOPE_UNARY(instruction, name, reference, ...) \
  case I::instruction:                                    \
    return reference;
#define ULPSCOPE_BINARY ULPSCOPE_UNARY
#include "graph/instructions.def"
    default:
      return quantize(static_cast<float>(x), v.p, v.q != 0.0f);
  }
}

}  // namespace

float apply(const Program::Value& v, float a, float b) {
  return static_cast<float>(value_of(v, static_cast<double>(a), static_cast<double>(b)));
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
