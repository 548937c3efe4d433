// Layers as instructions of a program: what pointwise operators, and reductions, softmax and normalization over
// rows, compute.
#pragma once

#include <optional>
#include <span>

#include "graph/network.h"
#include "graph/program.h"

namespace ulpscope::ops {

/// What one layer reads: a register, and the elements when they are constant (then the register may be absent, -1).
struct ProgramOperand {
  Register reg = -1;
  const Tensor* value = nullptr;
};

/// Appends the layer's instructions; gives the register of output 0. Nothing: the operator, or this form of it, has no
/// instructions and runs as its reference kernel. Pointwise operators, and reductions, softmax and normalization over
/// the rows of the program. `row_elements`: elements of a row.
std::optional<Register> append_instructions(Program& program, const Layer& layer,
                                            std::span<const ProgramOperand> operands, std::int64_t row_elements);

/// Whether `append_instructions` would succeed, and which operands it wants as registers (bit i: operand i, the last
/// bit also for those behind it).
struct ProgramSupport {
  bool supported = false;
  std::uint32_t registers = 0;
  bool wants(std::size_t operand) const { return (registers >> (operand < 31 ? operand : 31) & 1u) != 0; }
};
ProgramSupport program_support(const Layer& layer, std::span<const Tensor* const> constants);

}  // namespace ulpscope::ops
