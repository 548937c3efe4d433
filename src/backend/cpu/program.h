// Programs: nets of pointwise instructions and reductions over rows, run tile by tile so that values between two
// instructions stay in the cache or in registers. They are what pointwise chains, normalization, softmax and epilogues
// become.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/kernel.h"
#include "formats/quantized.h"
#include "formats/rounding.h"
#include "graph/program.h"
#include "ulpscope/shape.h"

namespace ulpscope::cpu {

/// What a kernel computes, as plain data.
struct ProgramForm {
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

    /// One value per element of the domain, in its order.
    bool is_dense(const Shape& domain) const;
  };
  /// What numbers are stored as.
  struct Integers {
    Quantization by;
    std::int32_t zero = 0;   ///< Of bytes: added to the integers, which are within the range of `by` then.
    bool as_floats = false;  ///< Held in float32, not as bytes.
  };
  struct Output {
    Register source;
    Rounding rounding;
    std::optional<Integers> integers;

    bool is_bytes() const noexcept { return integers && !integers->as_floats; }
  };

  Shape domain;
  int row_dims = 0;
  std::vector<RegisterInfo> registers;
  std::vector<Step> steps;
  std::vector<Input> inputs;
  std::vector<Output> outputs;

  /// Numbers that a register has: one per element of the domain, or one per row.
  std::int64_t count_of(Register r) const;
};

/// Builds a kernel. Registers are numbered in the order in which they are made.
class ProgramBuilder {
 public:
  /// `domain`: the shape of full registers, in the order of memory. `row_dims`: how many innermost dimensions form the
  /// rows that reductions work over; 0: no reductions.
  explicit ProgramBuilder(Shape domain, int row_dims = 0);
  explicit ProgramBuilder(ProgramForm form) : form_(std::move(form)) {}

  /// The k-th call names the k-th input of the kernel: float32, read with these strides (in elements, one per dimension
  /// of the domain; 0 broadcasts) and rounded.
  Register input(const std::vector<std::int64_t>& strides, Rounding rounding);
  Register constant(float value);
  Register apply(Instruction instruction, Register a, Register b = -1, float p = 0, float q = 0);
  /// The k-th call names the k-th output: dense over the domain (full register) or over the domain without its rows (a
  /// register with one value per row).
  void output(Register source, Rounding rounding);
  /// The same for 8-bit integers. REQUIRES: no rows.
  void output_integers(Register source, const ProgramForm::Integers& integers);

  const ProgramForm& form() const noexcept { return form_; }
  /// finish() makes something.
  bool can_finish() const;
  /// Nothing when an input's strides within a row have no single step (a broadcast pattern that rows cannot express),
  /// or when rows are empty.
  std::unique_ptr<Kernel> finish() const;

 private:
  Register computed(Register source);

  ProgramForm form_;
};

/// With rows: the instructions one after the other over some rows, which stay in the cache.
std::unique_ptr<Kernel> make_row_program(const ProgramForm& form);
/// Without rows: all instructions over some numbers, which stay in registers.
std::unique_ptr<Kernel> make_block_program(const ProgramForm& form);

}  // namespace ulpscope::cpu
