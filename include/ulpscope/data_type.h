// Element types of tensors, under their ONNX, NumPy and TensorRT names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ulpscope/export.h"

namespace ulpscope {

/// How one element of a tensor is stored. The order is part of no file format.
enum class DataType : std::uint8_t {
  kUndefined,
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kBool,
  kFloat8E4M3,  ///< FLOAT8E4M3FN of ONNX: no infinities, largest value 448. A name only until an engine supports it.
  kString,      ///< Refused by name at import.
};

/// Bytes of one element; 0 for kUndefined and kString.
ULPSCOPE_API std::size_t size_of(DataType type) noexcept;

/// NumPy's name ("float32", "bfloat16", "bool", ...), which is also the name in `--layer-precisions`.
ULPSCOPE_API std::string_view name_of(DataType type) noexcept;

/// TensorRT's name ("FLOAT", "HALF", "BF16", ...), as in `DataType.FLOAT`.
ULPSCOPE_API std::string_view tensorrt_name_of(DataType type) noexcept;

/// The inverse of `name_of`; also takes "fp32", "fp16", "bf16", "fp8". Nothing for an unknown name.
ULPSCOPE_API std::optional<DataType> data_type_from_name(std::string_view name) noexcept;

/// The inverse of `tensorrt_name_of`. Nothing for an unknown name.
ULPSCOPE_API std::optional<DataType> data_type_from_tensorrt_name(std::string_view name) noexcept;

/// True for float16, bfloat16, float8, float32 and float64.
ULPSCOPE_API bool is_floating(DataType type) noexcept;

/// True for the signed and unsigned integers; false for bool.
ULPSCOPE_API bool is_integer(DataType type) noexcept;

/// The type in which kernels hold values of `type`: float32 for every float type narrower than float32, else `type`.
/// Reduced precision is emulated: values are rounded to the narrow type and held in float32.
ULPSCOPE_API DataType physical_type(DataType type) noexcept;

}  // namespace ulpscope
