// CUDA source of programs (graph/program.h): one kernel for a net of pointwise instructions and reductions over rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernel_source.h"
#include "formats/quantized.h"
#include "formats/rounding.h"
#include "graph/program.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// A load of a program: elements in device memory, broadcast to the domain.
struct ProgramInput {
  DataType type = DataType::kFloat32;  ///< float32, float16, bfloat16, bool or an integer type; becomes float32.
  std::vector<std::int64_t> strides;   ///< In elements, one per dimension of the domain; 0: the same element all along.
  Rounding rounding = Rounding::kNone;  ///< Applied to every element that is loaded.
  int alignment = 16;                   ///< Bytes that the address of element 0 is a multiple of.
};

/// A register that is stored.
struct ProgramOutput {
  Register source = -1;
  DataType type = DataType::kFloat32;   ///< float32, float16, bfloat16; with `quantization` int8, uint8, fp8.
  std::vector<std::int64_t> strides;    ///< As ProgramInput's; 0 along the row dimensions: one value per row.
  Rounding rounding = Rounding::kNone;  ///< Applied before the element is converted to its type.
  int alignment = 16;
  /// Stored as integers: clamp(round_half_even(x / scale), -128, 127) or 0 ... 255, a true division; NaN is 0. Or as
  /// elements of fp8 e4m3, of that type or of float16: the nearest to x / scale, at most 448; NaN stays.
  std::optional<Quantization> quantization;
};

/// A program over a domain, with everything bound to memory.
struct ProgramSpec {
  Shape domain;      ///< Any order of dimensions: strides say what lies where. No dimension is 0.
  int row_dims = 0;  ///< How many innermost dimensions of the domain form the rows; 0: no row instructions.
  Program program;
  std::vector<ProgramInput> inputs;    ///< Program::Value::load is an index into these.
  std::vector<ProgramOutput> outputs;  ///< One or more.
};

/// The kernel takes pointers of the inputs, then of the outputs. Sums over rows are in float32, in an order that
/// depends on the spec alone.
KernelSource program_source(const ProgramSpec& spec);

/// What an instruction computes, as a CUDA expression of the values before it: `name` is a float expression of a register
/// that is no constant. REQUIRES: the register is a result, not of a row instruction.
std::string instruction_code(const Program& program, Register result,
                             const std::function<std::string(Register)>& name);

/// The float expressions of a program's registers, in their order, for one element of the domain. `pointers`: per load
/// the name of a pointer of the kernel (const unsigned char*); empty: the expression in `given` for that load is the
/// value. `index`: per dimension of the domain, a long long expression. `name`: of a register that is no constant.
/// REQUIRES: no row instructions.
std::vector<std::string> element_expressions(const Program& program, std::span<const ProgramInput> inputs,
                                             std::span<const std::string> pointers, std::span<const std::string> given,
                                             std::span<const std::string> index,
                                             const std::function<std::string(Register)>& name);

/// Statements "const float PREFIX<register> = ...;" of these.
std::string element_code(const Program& program, std::span<const ProgramInput> inputs,
                         std::span<const std::string> pointers, std::span<const std::string> given,
                         std::span<const std::string> index, const std::string& prefix);

/// An expression that loads element `offset` (a long long expression) of `pointer` as a rounded float32, and a
/// statement that stores `value` (a float expression) there.
std::string load_code(DataType type, Rounding rounding, const std::string& pointer, const std::string& offset);
std::string store_code(const ProgramOutput& output, const std::string& pointer, const std::string& offset,
                       const std::string& value);

}  // namespace ulpscope::cuda
