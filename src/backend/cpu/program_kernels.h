// The loops of a program's instructions, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "backend/cpu/program.h"
#include "backend/cpu/recurrent_kernels.h"

namespace ulpscope::cpu {

/// `count` elements; `out` may be `a` or `b`. The scalar forms have one operand fixed.
struct ProgramKernels {
  using Unary = void (*)(float* out, const float* a, std::int64_t count, float p, float q);
  using Binary = void (*)(float* out, const float* a, const float* b, std::int64_t count);
  using BinaryScalar = void (*)(float* out, const float* a, float b, std::int64_t count);
  using ScalarBinary = void (*)(float* out, float a, const float* b, std::int64_t count);
  using Reduce = float (*)(const float* a, std::int64_t count);

  Unary (*unary)(Instruction);
  Binary (*binary)(Instruction);
  BinaryScalar (*binary_scalar)(Instruction);
  ScalarBinary (*scalar_binary)(Instruction);
  Reduce (*reduce)(Instruction);
  RecurrentKernels recurrent;
  const char* name;
};

const ProgramKernels& program_kernels_baseline();
const ProgramKernels& program_kernels_avx2();
const ProgramKernels& program_kernels_avx512();

/// The fastest that this processor has; ULPSCOPE_ISA=baseline|avx2|avx512 forces one.
const ProgramKernels& program_kernels();

}  // namespace ulpscope::cpu
