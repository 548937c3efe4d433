// Programs: nets of pointwise instructions and of reductions over rows, as plain data. Operators say what they compute
// in this form, groups of layers are joined in it, and every backend carries it out in its own way.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// All compute in float32. p, q: parameters of the instruction.
enum class Instruction : std::uint8_t {
  // unary
  kCopy,
  kNeg,
  kAbs,
  kSign,
  kReciprocal,
  kSqrt,
  kRsqrt,
  kExp,
  kLog,
  kErf,
  kTanh,
  kSigmoid,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kFloor,
  kCeil,
  kRound,
  kRelu,
  kSquare,
  kLeakyRelu,    ///< p: slope
  kClip,         ///< min(max(x, p), q)
  kHardSigmoid,  ///< max(0, min(1, p x + q))
  kHardSwish,
  kSoftplus,
  kSoftsign,
  kMish,
  kElu,   ///< p (exp x - 1) below 0
  kSelu,  ///< q (p exp x - p) below 0, q x above
  kCelu,
  kThresholdedRelu,
  kSwish,  ///< p: alpha (Swish: x sigmoid(p x))
  kGelu,
  kGeluTanh,
  kQuantize,  ///< p: scale, q: 1 for unsigned. To 8-bit integers and back: clamp(round(x / p)) p.
  // binary
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMin,
  kMax,
  kPRelu,
  // reductions of a row to one value
  kRowSum,
  kRowMean,
  kRowMax,
  kRowMin,
  kRowSumSquare,
  kRowL1,
};

inline constexpr bool is_row_reduction(Instruction i) noexcept { return i >= Instruction::kRowSum; }
inline constexpr bool is_binary(Instruction i) noexcept { return i >= Instruction::kAdd && i < Instruction::kRowSum; }

/// Which value of a program; numbered in the order in which they are made.
using Register = int;

/// A net of instructions over a domain. Every register holds one value per element of the domain, or one per row.
struct Program {
  enum class Kind : std::uint8_t { kLoad, kConstant, kResult };
  struct Value {
    Kind kind = Kind::kResult;
    int load = -1;       ///< kLoad: which operand of the kernel.
    float constant = 0;  ///< kConstant.
    Instruction instruction = Instruction::kCopy;
    Register a = -1, b = -1;  ///< Earlier registers; b of binary instructions only.
    float p = 0, q = 0;
  };
  std::vector<Value> values;

  Register load(int operand) { return push({.kind = Kind::kLoad, .load = operand}); }
  Register constant(float value) { return push({.kind = Kind::kConstant, .constant = value}); }
  Register apply(Instruction instruction, Register a, Register b = -1, float p = 0, float q = 0) {
    return push({.instruction = instruction, .a = a, .b = b, .p = p, .q = q});
  }

 private:
  Register push(const Value& value) {
    values.push_back(value);
    return static_cast<Register>(values.size()) - 1;
  }
};

}  // namespace ulpscope
