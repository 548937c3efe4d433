// Layers as instructions of a program.
#pragma once

#include <optional>
#include <span>

#include "backend/cpu/program.h"
#include "graph/network.h"

namespace ulpscope::cpu {

/// What one layer reads: a register, and the elements when they are constant (then the register may be absent, -1).
struct ProgramOperand {
  ProgramBuilder::Register reg = -1;
  const Tensor* value = nullptr;
};

/// Appends the layer's instructions; gives the register of output 0. Nothing: the operator, or this form of it, has no
/// instructions and runs as its reference kernel. Pointwise operators, and reductions, softmax and normalisation over
/// the rows of the program. `row_elements`: elements of a row.
std::optional<ProgramBuilder::Register> lower_layer(ProgramBuilder& program, const Layer& layer,
                                                    std::span<const ProgramOperand> operands,
                                                    std::int64_t row_elements);

/// Whether `lower_layer` would succeed, and which operands it wants as registers (bit i: operand i).
struct ProgramSupport {
  bool supported = false;
  std::uint32_t registers = 0;
};
ProgramSupport program_support(const Layer& layer, std::span<const Tensor* const> constants);

}  // namespace ulpscope::cpu
