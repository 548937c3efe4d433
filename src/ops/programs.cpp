#include "ops/programs.h"

#include <algorithm>
#include <limits>

#include "ops/common.h"

namespace ulpscope::ops {
namespace {

using I = Instruction;

/// The single float of a constant operand.
std::optional<float> single_float(const Tensor* value) {
  if (value == nullptr || value->type() != DataType::kFloat32 || value->size() != 1) return std::nullopt;
  return value->data<float>()[0];
}

using F = Function;

struct Row {
  Function function;
  Instruction instruction;
};

/// Functions of one operand that are one instruction, with the coefficients of the operator as p and q.
constexpr Row kUnary[] = {
    {F::kNeg, I::kNeg},           {F::kAbs, I::kAbs},
    {F::kSign, I::kSign},         {F::kReciprocal, I::kReciprocal},
    {F::kSqrt, I::kSqrt},         {F::kExp, I::kExp},
    {F::kLog, I::kLog},           {F::kErf, I::kErf},
    {F::kTanh, I::kTanh},         {F::kSigmoid, I::kSigmoid},
    {F::kSin, I::kSin},           {F::kCos, I::kCos},
    {F::kTan, I::kTan},           {F::kAsin, I::kAsin},
    {F::kAcos, I::kAcos},         {F::kAtan, I::kAtan},
    {F::kSinh, I::kSinh},         {F::kCosh, I::kCosh},
    {F::kAsinh, I::kAsinh},       {F::kAcosh, I::kAcosh},
    {F::kAtanh, I::kAtanh},       {F::kFloor, I::kFloor},
    {F::kCeil, I::kCeil},         {F::kRound, I::kRound},
    {F::kRelu, I::kRelu},         {F::kHardSwish, I::kHardSwish},
    {F::kSoftplus, I::kSoftplus}, {F::kSoftsign, I::kSoftsign},
    {F::kMish, I::kMish},         {F::kLeakyRelu, I::kLeakyRelu},
    {F::kElu, I::kElu},           {F::kSelu, I::kSelu},
    {F::kCelu, I::kCelu},         {F::kThresholdedRelu, I::kThresholdedRelu},
    {F::kSwish, I::kSwish},       {F::kHardSigmoid, I::kHardSigmoid},
};

/// Functions that are folded over their operands.
constexpr Row kBinary[] = {{F::kAdd, I::kAdd}, {F::kSub, I::kSub},     {F::kMul, I::kMul}, {F::kDiv, I::kDiv},
                           {F::kPow, I::kPow}, {F::kPRelu, I::kPRelu}, {F::kMin, I::kMin}, {F::kMax, I::kMax},
                           {F::kSum, I::kAdd}, {F::kMean, I::kAdd}};

constexpr Row kReductions[] = {{F::kReduceSum, I::kRowSum},
                               {F::kReduceMean, I::kRowMean},
                               {F::kReduceMax, I::kRowMax},
                               {F::kReduceMin, I::kRowMin},
                               {F::kReduceL1, I::kRowL1},
                               {F::kReduceL2, I::kRowSumSquare},
                               {F::kReduceSumSquare, I::kRowSumSquare}};

std::optional<I> find(std::span<const Row> rows, Function function) {
  const auto found = std::ranges::find(rows, function, &Row::function);
  return found == rows.end() ? std::nullopt : std::optional(found->instruction);
}

constexpr std::uint32_t kAll = ~0u;

bool is_row_norm(Function f) {
  return f == F::kLayerNormalization || f == F::kRmsNormalization || f == F::kInstanceNormalization;
}

Register lower_softmax(Program& p, Register x, bool logarithm) {
  const Register shifted = p.apply(I::kSub, x, p.apply(I::kRowMax, x));
  const Register exponential = p.apply(I::kExp, shifted);
  const Register sum = p.apply(I::kRowSum, exponential);
  if (logarithm) return p.apply(I::kSub, shifted, p.apply(I::kLog, sum));
  return p.apply(I::kMul, exponential, p.apply(I::kReciprocal, sum));
}

/// Two passes (mean first, then the squares of the differences): no cancellation.
Register lower_norm(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                    std::int64_t row_elements) {
  const bool centered = layer.op->function != F::kRmsNormalization;
  Register x = operands[0].reg;
  if (centered) x = p.apply(I::kSub, x, p.apply(I::kRowMean, x));
  const Register sum = p.apply(I::kRowSumSquare, x);
  const Register mean_square = p.apply(I::kDiv, sum, p.constant(static_cast<float>(row_elements)));
  const Register variance = p.apply(I::kAdd, mean_square, p.constant(layer.attributes.real("epsilon", 1e-5f)));
  x = p.apply(I::kMul, x, p.apply(I::kRsqrt, variance));
  if (operands.size() > 1 && operands[1].reg >= 0) x = p.apply(I::kMul, x, operands[1].reg);
  if (operands.size() > 2 && operands[2].reg >= 0) x = p.apply(I::kAdd, x, operands[2].reg);
  return x;
}

}  // namespace

ProgramSupport program_support(const Layer& layer, std::span<const Tensor* const> constants) {
  const Function f = layer.op->function;
  const auto constant = [&](std::size_t i) { return i < constants.size() ? constants[i] : nullptr; };
  const auto absent = [&](std::size_t i) { return i >= layer.inputs.size() || layer.inputs[i] == kNone; };
  if (find(kUnary, f) || find(kReductions, f)) return {true, 1};
  if (find(kBinary, f) || f == F::kBiasGelu || is_row_norm(f)) return {true, kAll};
  if (f == F::kGelu || f == F::kSoftmax || f == F::kLogSoftmax) return {true, 1};
  if (f == F::kClip) return {(absent(1) || single_float(constant(1))) && (absent(2) || single_float(constant(2))), 1};
  return {};
}

std::optional<Register> append_instructions(Program& p, const Layer& layer, std::span<const ProgramOperand> operands,
                                            std::int64_t row_elements) {
  const Function f = layer.op->function;
  const Register x = operands[0].reg;
  if (const auto instruction = find(kUnary, f)) {
    const Coefficients c = coefficients_of(layer);
    return p.apply(*instruction, x, -1, c.p, c.q);
  }
  if (const auto instruction = find(kBinary, f)) {
    if (f == F::kPow) {
      const auto exponent = single_float(operands[1].value);
      if (exponent == 2.0f) return p.apply(I::kSquare, x);
      if (exponent == 1.0f) return p.apply(I::kCopy, x);
    }
    Register result = x;
    for (std::size_t i = 1; i < operands.size(); ++i) result = p.apply(*instruction, result, operands[i].reg);
    if (operands.size() == 1) result = p.apply(I::kCopy, x);
    if (f == F::kMean) result = p.apply(I::kDiv, result, p.constant(static_cast<float>(operands.size())));
    return result;
  }
  if (f == F::kGelu || f == F::kBiasGelu) {
    const bool biased = f == F::kBiasGelu && operands.size() > 1 && operands[1].reg >= 0;
    return p.apply(is_tanh_gelu(layer) ? I::kGeluTanh : I::kGelu, biased ? p.apply(I::kAdd, x, operands[1].reg) : x);
  }
  if (f == F::kClip) {
    constexpr float kMax = std::numeric_limits<float>::infinity();
    const auto bound = [&](std::size_t i, const char* name, float open) {
      if (layer.opset < 11) return layer.attributes.real(name, open);
      return i < operands.size() && operands[i].value ? *single_float(operands[i].value) : open;
    };
    return p.apply(I::kClip, x, -1, bound(1, "min", -kMax), bound(2, "max", kMax));
  }
  if (const auto instruction = find(kReductions, f)) {
    const Register result = p.apply(*instruction, x);
    return f == F::kReduceL2 ? p.apply(I::kSqrt, result) : result;
  }
  if (f == F::kSoftmax || f == F::kLogSoftmax) return lower_softmax(p, x, f == F::kLogSoftmax);
  if (is_row_norm(f)) return lower_norm(p, layer, operands, row_elements);
  return std::nullopt;
}

}  // namespace ulpscope::ops
