// Softmax of a row by the loops of programs, instruction for instruction as ops/programs.cpp has it.
#pragma once

#include "backend/cpu/program_kernels.h"

namespace ulpscope::cpu {

class SoftmaxLoops {
 public:
  /// In place.
  void softmax(float* row, std::int64_t count) const {
    exp_(row, row, count, max_(row, count), 0);
    multiply_(row, row, 1.0f / sum_(row, count), count);
  }
  /// `exponentials`: memory for as many.
  void log_softmax(float* row, std::int64_t count, float* exponentials) const {
    subtract_(row, row, max_(row, count), count);
    exp_(exponentials, row, count, 0, 0);
    float sum = sum_(exponentials, count);
    log_(&sum, &sum, 1, 0, 0);
    subtract_(row, row, sum, count);
  }

 private:
  const ProgramKernels& kernels_ = program_kernels();
  const ProgramKernels::Unary exp_ = kernels_.unary(Instruction::kExp), log_ = kernels_.unary(Instruction::kLog);
  const ProgramKernels::BinaryScalar multiply_ = kernels_.binary_scalar(Instruction::kMul),
                                     subtract_ = kernels_.binary_scalar(Instruction::kSub);
  const ProgramKernels::Reduce max_ = kernels_.reduce(Instruction::kReduceMax),
                               sum_ = kernels_.reduce(Instruction::kReduceSum);
};

}  // namespace ulpscope::cpu
