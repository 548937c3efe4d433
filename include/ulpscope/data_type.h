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
  // Types that values are stored in: converted, moved, quantized and dequantized, but not computed in. A tensor holds
  // one element per byte, in the low bits; files hold those of less than 8 bits packed (formats/codes.h).
  kFloat8E4M3,  ///< FLOAT8E4M3FN of ONNX: no infinities, largest value 448.
  kFloat8E4M3Fnuz,
  kFloat8E5M2,
  kFloat8E5M2Fnuz,
  kFloat8E8M0,  ///< Powers of two, for the scales of blocks.
  kFloat6E2M3,
  kFloat6E3M2,
  kFloat4E2M1,
  kInt4,
  kUInt4,
  kInt2,
  kUInt2,
  kString,  ///< Refused by name at import.
};

/// Bytes of one element; 0 for kUndefined and kString.
ULPSCOPE_API std::size_t size_of(DataType type) noexcept;

/// As `ml_dtypes_name_of`, which is also the name in `--layer-precisions`, but "fp8" for kFloat8E4M3.
ULPSCOPE_API std::string_view name_of(DataType type) noexcept;

/// The name in Python: NumPy's, or that of the package ml_dtypes ("bfloat16", "float8_e4m3fn", "int4", ...).
ULPSCOPE_API std::string_view ml_dtypes_name_of(DataType type) noexcept;

/// TensorRT's name ("FLOAT", "HALF", "BF16", ...), as in `DataType.FLOAT`.
ULPSCOPE_API std::string_view tensorrt_name_of(DataType type) noexcept;

/// The inverse of `name_of` and `ml_dtypes_name_of`; also takes "fp32", "fp16", "bf16" and ONNX's names
/// ("float8e4m3fn", "float4e2m1", ...). Nothing for an unknown name.
ULPSCOPE_API std::optional<DataType> data_type_from_name(std::string_view name) noexcept;

/// True for the floats of every width.
ULPSCOPE_API bool is_floating(DataType type) noexcept;

/// True for the signed and unsigned integers; false for bool.
ULPSCOPE_API bool is_integer(DataType type) noexcept;

/// The type in which kernels hold values of `type`: float32 for every float type narrower than float32, int8 and uint8
/// for narrower integers, else `type`. Reduced precision is emulated: values are rounded to the narrow type and held in
/// the wider one.
ULPSCOPE_API DataType physical_type(DataType type) noexcept;

/// True for types that no arithmetic runs in: the floats of 8 bits and less, the integers of less than 8.
ULPSCOPE_API bool is_storage_only(DataType type) noexcept;

}  // namespace ulpscope
