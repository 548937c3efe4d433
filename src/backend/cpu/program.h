// Programs: nets of pointwise instructions and reductions over rows, run tile by tile so that values between two
// instructions stay in the cache. They are what pointwise chains, normalization, softmax and epilogues become.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/kernel.h"
#include "formats/rounding.h"
#include "graph/program.h"
#include "ulpscope/shape.h"

namespace ulpscope::cpu {

/// Builds a kernel. Registers are numbered in the order in which they are made.
class ProgramBuilder {
 public:
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

  /// Nothing when an input's strides within a row have no single step (a broadcast pattern that rows cannot express),
  /// or when rows are empty.
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
