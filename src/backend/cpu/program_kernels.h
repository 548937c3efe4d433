// The loops of a program's instructions, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/depthwise_kernels.h"
#include "backend/cpu/product_kernels.h"
#include "backend/cpu/program.h"
#include "backend/cpu/recurrent_kernels.h"

namespace ulpscope::cpu {

/// An operation on a block: as many numbers as eight vector registers hold. A list of them is run from front to back,
/// and the block stays in registers all the while. Functions are of a type of their own, which only run() knows.
struct BlockOp {
  using Function = void (*)();
  Function function = nullptr;
  float p = 0, q = 0;  ///< Of the instruction, or a number.
  float r = 0, s = 0;  ///< Of quantizations: what find_inverse() found.
  int place = -1;      ///< Which of the places it reads or writes.
};

/// A binary instruction by where its operands are; the other one is the block.
struct BlockBinary {
  BlockOp::Function with_place, place_with, with_number, number_with;
};

struct BlockKernels {
  std::int64_t elements;  ///< Of a block.
  BlockOp::Function (*load)();
  BlockOp::Function (*store)();
  BlockOp::Function (*fill)();  ///< With p.
  BlockOp::Function (*end)();   ///< The last one of each list.
  BlockOp::Function (*unary)(Instruction);
  BlockBinary (*binary)(Instruction);
  /// Integers times their scale p again, and integers stored as bytes; unsigned where q is not 0. `inverse`: r and s
  /// are an inverse.
  BlockOp::Function (*quantize)(bool inverse);
  BlockOp::Function (*store_bytes)(bool inverse);
  /// True where x * (r + s) gives, for every x, the integer that x / scale gives.
  bool (*find_inverse)(float scale, bool is_unsigned, float& r, float& s);
  /// Runs the list on `count` blocks. The first `moving` places go on by `steps`, in bytes, behind each.
  void (*run)(const BlockOp* ops, std::byte** places, const std::ptrdiff_t* steps, std::size_t moving,
              std::int64_t count);
};

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
  /// Adds to each of `width` sums its column of `rows` rows, from the first to the last.
  void (*add_rows)(float* sums, const float* in, std::int64_t stride, std::int64_t rows, std::int64_t width);
  DepthwiseFunction depthwise;
  BlockKernels block;
  RecurrentKernels recurrent;
  ProductKernels product;
  const char* name;
};

const ProgramKernels& program_kernels_baseline();
const ProgramKernels& program_kernels_avx2();
const ProgramKernels& program_kernels_avx512();

/// Those of instruction_set().
const ProgramKernels& program_kernels();

}  // namespace ulpscope::cpu
