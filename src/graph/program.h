// Programs: nets of pointwise instructions and of reductions over rows, as plain data. Operators say what they compute
// in this form, groups of layers are joined in it, and every backend carries it out in its own way.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op_traits.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// What an instruction computes: those of Function that are one instruction, with parameters p and q.
using Instruction = Function;

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
