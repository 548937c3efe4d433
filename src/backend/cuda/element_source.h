// Words of generated CUDA: types, numbers, conversions of single elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/cuda/program_source.h"
#include "formats/rounding.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// The prelude's name of an element type: "f16", "float", "i64", ...
/// Throws Error(kUnsupported) for types that no kernel reads or writes.
std::string type_code(DataType type);

/// A literal of exactly this value, infinities and NaN included.
std::string literal(float value);
/// Of an index: unsigned (modulo 2^32) with `wide` false, else long long.
std::string literal(std::int64_t value, bool wide);

/// The sum of strides[i] * index[i], an expression of type long long.
std::string sum_of_strides(std::span<const std::int64_t> strides, std::span<const std::string> index);

/// `value`, a float expression, rounded. `type`: the type of which the value is, so that needless roundings fall away.
/// Throws Error(kUnsupported) for saturation, and for formats but fp16, bf16 and tf32.
std::string rounded_code(Rounding rounding, const std::string& value, DataType type = DataType::kFloat32);

/// `value` / divisor, correctly rounded but for results below 2^-100, which may be an ulp off.
std::string quotient_code(const std::string& value, float divisor);

/// What is left of `value` when it is stored: rounded, or an integer.
std::string stored_code(const ProgramOutput& output, const std::string& value);

/// The functions of all instructions, for the prelude.
std::string instruction_functions();

}  // namespace ulpscope::cuda
