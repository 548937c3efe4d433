// Pointwise instructions as functions of CUDA source.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

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

constexpr InstructionRow kInstructions[] = {
#define ULPSCOPE_UNARY(instruction, name, reference, vector, cuda) {Instruction::instruction, name, cuda},
#include "graph/instructions.def"
    {Instruction::kFakeQuantize, "fake_quantize",
     "(q != 0.0f ? to_integer(a / p, 0.0f, 255.0f) : to_integer(a / p, -128.0f, 127.0f)) * p"},
#define ULPSCOPE_BINARY(instruction, name, reference, vector, cuda) {Instruction::instruction, name, cuda},
#include "graph/instructions.def"
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

/// 1 / divisor as high + low, both positive, of all but 2^-48 of it. REQUIRES: a normal positive number, no power of
/// two.
struct Reciprocal {
  float high, low;
};
Reciprocal reciprocal_of(float divisor) {
  // The quotient in double is off by 2^-53 of itself; what high leaves of it is exact.
  const double whole = 1.0 / static_cast<double>(divisor);
  float high = static_cast<float>(whole);
  if (static_cast<double>(high) >= whole) high = std::nextafterf(high, 0.0f);
  return {high, static_cast<float>(whole - static_cast<double>(high))};
}

/// Whether fma(a, high, a * low) is a / divisor correctly rounded for all a, but for results below 2^-100. It is off by
/// less than 2^-47 of the quotient, so that only quotients as near to the middle of two floats matter (N. Brisebarre,
/// J.-M. Muller, "Correctly rounded multiplication by arbitrary precision constants", 2008). With integers a and b of
/// 24 bits these have |2^s a - b (2m + 1)| <= 8 for s = 24 or 25: congruences, whose few solutions are tried.
bool rounds_correctly(float divisor, const Reciprocal& reciprocal) {
  int exponent = 0;
  const auto b = static_cast<std::uint64_t>(std::ldexp(std::frexp(divisor, &exponent), 24));
  const int zeros = std::countr_zero(b);
  const std::uint64_t odd = b >> zeros;
  std::uint64_t inverse = odd;  // Modulo 2^64, by Newton's steps.
  for (int i = 0; i < 5; ++i) inverse *= 2 - odd * inverse;
  const float scaled = std::ldexp(static_cast<float>(b), exponent - 24);
  for (int s : {24, 25})
    for (std::int64_t j = -8; j <= 8; ++j) {
      if (j == 0 || std::countr_zero(static_cast<std::uint64_t>(j)) != zeros) continue;
      // 2m + 1 lies between 2^24 and 2^25.
      const std::uint64_t step = std::uint64_t{1} << (s - zeros);
      const std::uint64_t least = std::uint64_t{1} << 24;
      const std::uint64_t root = static_cast<std::uint64_t>(-(j / (std::int64_t{1} << zeros))) * inverse & (step - 1);
      std::uint64_t middle = root + (root < least ? (least - root + step - 1) / step * step : 0);
      for (; middle < 2 * least; middle += step) {
        const std::uint64_t a = (b * middle + static_cast<std::uint64_t>(j)) >> s;
        if (a < least / 2 || a >= least) continue;
        const auto number = static_cast<float>(a);
        if (std::fma(number, reciprocal.high, number * reciprocal.low) != number / scaled) return false;
      }
    }
  return true;
}

/// c + erf(x) for |c| >= 1, where half of erf's instructions do.
std::optional<std::string> sum_with_erf_code(const Program& program, const Program::Value& sum,
                                             const std::function<std::string(Register)>& name) {
  if (sum.instruction != Instruction::kAdd) return std::nullopt;
  for (const auto& [constant, other] : {std::pair(sum.a, sum.b), std::pair(sum.b, sum.a)}) {
    const Program::Value &c = program.values[constant], &erf = program.values[other];
    if (c.kind == Program::Kind::kConstant && std::fabs(c.constant) >= 1.0f && erf.kind == Program::Kind::kResult &&
        erf.instruction == Instruction::kErf)
      return fmt::format("sum_with_erf({}, {})", literal(c.constant), name(erf.a));
  }
  return std::nullopt;
}

}  // namespace

/// Without the branches of a division, which keep a processor from working on several at once, by everyday divisors.
std::string quotient_code(const std::string& value, float divisor) {
  const float positive = std::fabs(divisor);
  if (!(positive >= 0x1p-20f && positive <= 0x1p20f)) return fmt::format("{} / {}", value, literal(divisor));
  int exponent = 0;
  if (std::frexp(positive, &exponent) == 0.5f) return fmt::format("{} * {}", value, literal(1.0f / divisor));
  const char* const sign = divisor < 0 ? "-" : "";
  if (const Reciprocal r = reciprocal_of(positive); rounds_correctly(positive, r))
    return fmt::format("multiplied({}{}, {}, {})", sign, value, literal(r.high), literal(r.low));
  return fmt::format("divided({}{}, {}, {})", sign, value, literal(positive), literal(1.0f / positive));
}

std::string instruction_code(const Program& program, Register result,
                             const std::function<std::string(Register)>& name) {
  const Program::Value& value = program.values[result];
  const auto operand = [&](Register r) {
    return program.values[r].kind == Program::Kind::kConstant ? literal(program.values[r].constant) : name(r);
  };
  const std::string a = operand(value.a);
  if (value.instruction == Instruction::kDiv && program.values[value.b].kind == Program::Kind::kConstant)
    return quotient_code(a, program.values[value.b].constant);
  if (auto code = sum_with_erf_code(program, value, operand)) return *std::move(code);
  for (const InstructionRow& row : kInstructions) {
    if (row.instruction != value.instruction) continue;
    std::string arguments = a;
    if (is_binary_instruction(row.instruction)) arguments += ", " + operand(value.b);
    if (body_reads(row.body, 'p')) arguments += ", " + literal(value.p);
    if (body_reads(row.body, 'q')) arguments += ", " + literal(value.q);
    return fmt::format("do_{}({})", row.name, arguments);
  }
  throw InternalError(
      fmt::format("function {} is no pointwise instruction of the CUDA backend", static_cast<int>(value.instruction)));
}

}  // namespace ulpscope::cuda
