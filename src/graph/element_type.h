// Element types as ONNX numbers them (TensorProto.DataType).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulpscope/data_type.h"

namespace ulpscope {

/// True for the numbers from 1 that ONNX gives a meaning.
bool defines_onnx_type(std::int64_t number) noexcept;
/// Nothing for types that ulpscope does not import, and for numbers that ONNX does not define.
std::optional<DataType> from_onnx_type(std::int64_t number) noexcept;
/// The inverse; 0 (UNDEFINED) for types without one.
int to_onnx_type(DataType type) noexcept;
/// "float8e4m3fn", "int4", "string", ...; "type 77" for a number that ONNX does not define.
std::string onnx_type_name(std::int64_t number);

}  // namespace ulpscope
