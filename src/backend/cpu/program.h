// Programs: nets of pointwise instructions and reductions over rows, run tile by tile so that values between two
// instructions stay in the cache. They are what pointwise chains, normalisation, softmax and epilogues become.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "ulpscope/shape.h"

namespace ulpscope::cpu {

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
  kQuantise,  ///< p: scale, q: 1 for unsigned. To 8-bit integers and back: clamp(round(x / p)) p.
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

/// Builds a kernel. Registers are numbered in the order in which they are made.
class ProgramBuilder {
 public:
  using Register = int;

  /// `domain`: the shape of full registers, in the order of memory. `row_dims`: how many innermost dimensions form the
  /// rows that reductions work over; 0: no reductions.
  explicit ProgramBuilder(Shape domain, int row_dims = 0);

  /// The k-th call names the k-th input of the kernel: float32, read with these strides (in elements, one per dimension
  /// of the domain; 0 broadcasts) and rounded.
  Register input(const std::vector<std::int64_t>& strides, Rounding rounding);
  Register constant(float value);
  Register apply(Instruction instruction, Register a, Register b = -1, float p = 0, float q = 0);
  /// The k-th call names the k-th output: dense over the domain (full register) or over the domain without its rows (a
  /// register with one value per row).
  void output(Register source, Rounding rounding);

  /// One value for each row (or for all) instead of one per element.
  bool is_full(Register r) const { return registers_[static_cast<std::size_t>(r)].kind == Kind::kFull; }

  /// Nothing when an input's strides within a row have no single step (a broadcast pattern that rows cannot express).
  std::unique_ptr<Kernel> finish();

 private:
  friend class ProgramKernel;
  enum class Kind : std::uint8_t { kConstant, kRow, kFull };
  struct RegisterInfo {
    Kind kind;
    int input = -1;
    float value = 0;
  };
  struct Step {
    Instruction instruction;
    Register target, a, b;
    float p, q;
  };
  struct Input {
    std::vector<std::int64_t> strides;
    Rounding rounding;
    Register target;
  };
  struct Output {
    Register source;
    Rounding rounding;
  };

  Shape domain_;
  int row_dims_;
  std::vector<RegisterInfo> registers_;
  std::vector<Step> steps_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace ulpscope::cpu
