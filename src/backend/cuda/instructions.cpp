// What pointwise instructions compute: one row each.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "backend/cuda/element_source.h"
#include "backend/cuda/program_source.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

struct InstructionRow {
  Instruction instruction;
  const char* name;  ///< Of its function.
  const char* body;  ///< A float expression of a, of b for two operands, of p and q.
};

using I = Instruction;

constexpr InstructionRow kInstructions[] = {
    {I::kNeg, "neg", "-a"},
    {I::kAbs, "abs", "fabsf(a)"},
    {I::kSign, "sign", "a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : a"},
    {I::kReciprocal, "reciprocal", "1.0f / a"},
    {I::kSqrt, "sqrt", "sqrtf(a)"},
    {I::kExp, "exp", "expf(a)"},
    {I::kLog, "log", "logf(a)"},
    {I::kErf, "erf", "erf_of(a)"},
    {I::kTanh, "tanh", "tanhf(a)"},
    {I::kSigmoid, "sigmoid", "sigmoid(a)"},
    {I::kSin, "sin", "sinf(a)"},
    {I::kCos, "cos", "cosf(a)"},
    {I::kTan, "tan", "tanf(a)"},
    {I::kAsin, "asin", "asinf(a)"},
    {I::kAcos, "acos", "acosf(a)"},
    {I::kAtan, "atan", "atanf(a)"},
    {I::kSinh, "sinh", "sinhf(a)"},
    {I::kCosh, "cosh", "coshf(a)"},
    {I::kAsinh, "asinh", "asinhf(a)"},
    {I::kAcosh, "acosh", "acoshf(a)"},
    {I::kAtanh, "atanh", "atanhf(a)"},
    {I::kFloor, "floor", "floorf(a)"},
    {I::kCeil, "ceil", "ceilf(a)"},
    {I::kRound, "round", "rintf(a)"},
    {I::kRelu, "relu", "a <= 0.0f ? 0.0f : a"},
    {I::kLeakyRelu, "leaky_relu", "a < 0.0f ? a * p : a"},
    {I::kThresholdedRelu, "thresholded_relu", "a > p ? a : 0.0f"},
    {I::kElu, "elu", "a < 0.0f ? p * expm1f(a) : a"},
    {I::kCelu, "celu", "larger(0.0f, a) + smaller(0.0f, p * expm1f(a / p))"},
    {I::kSelu, "selu", "a > 0.0f ? q * a : q * p * expm1f(a)"},
    {I::kHardSigmoid, "hard_sigmoid", "clamp(a * p + q, 0.0f, 1.0f)"},
    {I::kHardSwish, "hard_swish", "a * clamp(a / 6.0f + 0.5f, 0.0f, 1.0f)"},
    {I::kSoftplus, "softplus", "softplus(a)"},
    {I::kSoftsign, "softsign", "a / (1.0f + fabsf(a))"},
    {I::kMish, "mish", "a * tanhf(softplus(a))"},
    {I::kSwish, "swish", "a * sigmoid(p * a)"},
    {I::kGelu, "gelu", "0.5f * a * (1.0f + erf_of(a * 0x1.6a09e6p-1f))"},
    {I::kClip, "clip", "clamp(a, p, q)"},
    {I::kCopy, "copy", "a"},
    {I::kRsqrt, "rsqrt", "1.0f / sqrtf(a)"},
    {I::kSquare, "square", "a * a"},
    {I::kGeluTanh, "gelu_tanh", "0.5f * a * (1.0f + tanhf(0x1.988454p-1f * (a + 0x1.6e4e26p-5f * a * a * a)))"},
    {I::kFakeQuantize, "fake_quantize",
     "(q != 0.0f ? quantize(a, p, 0.0f, 255.0f) : quantize(a, p, -128.0f, 127.0f)) * p"},
    {I::kAdd, "add", "a + b"},
    {I::kSub, "sub", "a - b"},
    {I::kMul, "mul", "a * b"},
    {I::kDiv, "div", "a / b"},
    {I::kPow, "pow", "powf(a, b)"},
    {I::kMin, "min", "smaller(a, b)"},
    {I::kMax, "max", "larger(a, b)"},
    {I::kPRelu, "prelu", "a < 0.0f ? a * b : a"},
};

/// Whether a body reads this operand or parameter: one letter that stands alone.
bool body_reads(std::string_view body, char name) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  for (std::size_t i = 0; i < body.size(); ++i)
    if (body[i] == name && (i == 0 || !is_word(body[i - 1])) && (i + 1 == body.size() || !is_word(body[i + 1])))
      return true;
  return false;
}

}  // namespace

std::string instruction_functions() {
  std::string text = "\n";
  for (const InstructionRow& row : kInstructions) {
    std::string parameters = "float a";
    for (char name : {'b', 'p', 'q'})
      if (body_reads(row.body, name)) parameters += fmt::format(", float {}", name);
    text += fmt::format("DEVICE float do_{}({}) {{ return {}; }}\n", row.name, parameters, row.body);
  }
  return text;
}

namespace {

/// A division by a constant without the branches of a division, which keep a processor from working on several at once.
/// None for others than the everyday ones.
std::optional<std::string> division_code(float divisor, const std::string& a) {
  if (!(std::fabs(divisor) >= 0x1p-20f && std::fabs(divisor) <= 0x1p20f)) return std::nullopt;
  int exponent = 0;
  if (std::fabs(std::frexp(divisor, &exponent)) == 0.5f) return fmt::format("{} * {}", a, literal(1.0f / divisor));
  return fmt::format("divided({}{}, {}, {})", divisor < 0 ? "-" : "", a, literal(std::fabs(divisor)),
                     literal(1.0f / std::fabs(divisor)));
}

}  // namespace

std::string instruction_code(const Program& program, Register result, const std::string& a, const std::string& b) {
  const Program::Value& value = program.values[result];
  if (value.instruction == Instruction::kDiv && program.values[value.b].kind == Program::Kind::kConstant)
    if (auto code = division_code(program.values[value.b].constant, a)) return *std::move(code);
  for (const InstructionRow& row : kInstructions) {
    if (row.instruction != value.instruction) continue;
    std::string arguments = a;
    if (is_binary_instruction(row.instruction)) arguments += ", " + b;
    if (body_reads(row.body, 'p')) arguments += ", " + literal(value.p);
    if (body_reads(row.body, 'q')) arguments += ", " + literal(value.q);
    return fmt::format("do_{}({})", row.name, arguments);
  }
  throw InternalError(
      fmt::format("function {} is no pointwise instruction of the CUDA backend", static_cast<int>(value.instruction)));
}

}  // namespace ulpscope::cuda
