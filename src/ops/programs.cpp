#include "ops/programs.h"

#include <limits>

#include "ops/common.h"

namespace ulpscope::ops {
namespace {

using F = Function;

/// The single float of a constant operand.
std::optional<float> single_float(const Tensor* value) {
  if (value == nullptr || value->type() != DataType::kFloat32 || value->size() != 1) return std::nullopt;
  return value->data<float>()[0];
}

/// Functions that are folded over their operands, by this instruction.
std::optional<Instruction> folded(Function f) {
  if (f == F::kSum || f == F::kMean) return F::kAdd;
  return is_binary_instruction(f) ? std::optional(f) : std::nullopt;
}

constexpr std::uint32_t kAll = ~0u;

bool is_row_norm(Function f) {
  return f == F::kLayerNormalization || f == F::kRmsNormalization || f == F::kInstanceNormalization;
}

Register lower_softmax(Program& p, Register x, bool logarithm) {
  const Register shifted = p.apply(F::kSub, x, p.apply(F::kReduceMax, x));
  const Register exponential = p.apply(F::kExp, shifted);
  const Register sum = p.apply(F::kReduceSum, exponential);
  if (logarithm) return p.apply(F::kSub, shifted, p.apply(F::kLog, sum));
  return p.apply(F::kMul, exponential, p.apply(F::kReciprocal, sum));
}

/// Two passes (mean first, then the squares of the differences): no cancellation.
Register lower_norm(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                    std::int64_t row_elements) {
  const bool centered = layer.op->function != F::kRmsNormalization;
  Register x = operands[0].reg;
  if (centered) x = p.apply(F::kSub, x, p.apply(F::kReduceMean, x));
  const Register sum = p.apply(F::kReduceSumSquare, x);
  const Register mean_square = p.apply(F::kDiv, sum, p.constant(static_cast<float>(row_elements)));
  const Register variance = p.apply(F::kAdd, mean_square, p.constant(layer.attributes.real("epsilon", 1e-5f)));
  x = p.apply(F::kMul, x, p.apply(F::kRsqrt, variance));
  if (operands.size() > 1 && operands[1].reg >= 0) x = p.apply(F::kMul, x, operands[1].reg);
  if (operands.size() > 2 && operands[2].reg >= 0) x = p.apply(F::kAdd, x, operands[2].reg);
  return x;
}

}  // namespace

ProgramSupport program_support(const Layer& layer, std::span<const Tensor* const> constants) {
  const Function f = layer.op->function;
  const auto constant = [&](std::size_t i) { return i < constants.size() ? constants[i] : nullptr; };
  const auto absent = [&](std::size_t i) { return i >= layer.inputs.size() || layer.inputs[i] == kNone; };
  if (is_unary_instruction(f) || is_row_instruction(f) || f == F::kReduceL2) return {true, 1};
  if (folded(f) || f == F::kBiasGelu || is_row_norm(f)) return {true, kAll};
  if (f == F::kGelu || f == F::kSoftmax || f == F::kLogSoftmax) return {true, 1};
  if (f == F::kClip) return {(absent(1) || single_float(constant(1))) && (absent(2) || single_float(constant(2))), 1};
  return {};
}

std::optional<Register> append_instructions(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                                            std::int64_t row_elements) {
  const Function f = layer.op->function;
  const Register x = operands[0].reg;
  if (is_unary_instruction(f)) {
    const Coefficients c = coefficients_of(layer);
    return p.apply(f, x, -1, c.p, c.q);
  }
  if (const auto instruction = folded(f)) {
    if (f == F::kPow) {
      const auto exponent = single_float(operands[1].value);
      if (exponent == 2.0f) return p.apply(F::kSquare, x);
      if (exponent == 3.0f) return p.apply(F::kMul, p.apply(F::kSquare, x), x);
      if (exponent == 1.0f) return p.apply(F::kCopy, x);
    }
    Register result = x;
    for (std::size_t i = 1; i < operands.size(); ++i) result = p.apply(*instruction, result, operands[i].reg);
    if (operands.size() == 1) result = p.apply(F::kCopy, x);
    if (f == F::kMean) result = p.apply(F::kDiv, result, p.constant(static_cast<float>(operands.size())));
    return result;
  }
  if (f == F::kGelu || f == F::kBiasGelu) {
    const bool biased = f == F::kBiasGelu && operands.size() > 1 && operands[1].reg >= 0;
    return p.apply(is_tanh_gelu(layer) ? F::kGeluTanh : F::kGelu, biased ? p.apply(F::kAdd, x, operands[1].reg) : x);
  }
  if (f == F::kClip) {
    constexpr float kMax = std::numeric_limits<float>::max();
    const auto bound = [&](std::size_t i, const char* name, float open) {
      if (layer.opset < 11) return layer.attributes.real(name, open);
      return i < operands.size() && operands[i].value ? *single_float(operands[i].value) : open;
    };
    return p.apply(F::kClip, x, -1, bound(1, "min", -kMax), bound(2, "max", kMax));
  }
  if (is_row_instruction(f)) return p.apply(f, x);
  if (f == F::kReduceL2) return p.apply(F::kSqrt, p.apply(F::kReduceSumSquare, x));
  if (f == F::kSoftmax || f == F::kLogSoftmax) return lower_softmax(p, x, f == F::kLogSoftmax);
  if (is_row_norm(f)) return lower_norm(p, layer, operands, row_elements);
  return std::nullopt;
}

}  // namespace ulpscope::ops
