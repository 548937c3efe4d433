#include "ulpscope/data_type.h"

#include <array>

namespace ulpscope {
namespace {

using T = DataType;

struct TypeRow {
  T type;
  std::size_t size;
  std::string_view name;
  std::string_view alias;
  std::string_view tensorrt;  ///< ONNX's for what TensorRT does not have.
  T physical;
  std::string_view ml_dtypes = {};  ///< Where `name` is another.
};

constexpr std::array kTypes{
    TypeRow{T::kUndefined, 0, "undefined", "", "UNDEFINED", T::kUndefined},
    TypeRow{T::kFloat32, 4, "float32", "fp32", "FLOAT", T::kFloat32},
    TypeRow{T::kFloat64, 8, "float64", "fp64", "DOUBLE", T::kFloat64},
    TypeRow{T::kFloat16, 2, "float16", "fp16", "HALF", T::kFloat32},
    TypeRow{T::kBFloat16, 2, "bfloat16", "bf16", "BF16", T::kFloat32},
    TypeRow{T::kInt8, 1, "int8", "", "INT8", T::kInt8},
    TypeRow{T::kUInt8, 1, "uint8", "", "UINT8", T::kUInt8},
    TypeRow{T::kInt16, 2, "int16", "", "INT16", T::kInt16},
    TypeRow{T::kUInt16, 2, "uint16", "", "UINT16", T::kUInt16},
    TypeRow{T::kInt32, 4, "int32", "", "INT32", T::kInt32},
    TypeRow{T::kUInt32, 4, "uint32", "", "UINT32", T::kUInt32},
    TypeRow{T::kInt64, 8, "int64", "", "INT64", T::kInt64},
    TypeRow{T::kUInt64, 8, "uint64", "", "UINT64", T::kUInt64},
    TypeRow{T::kBool, 1, "bool", "", "BOOL", T::kBool},
    TypeRow{T::kFloat8E4M3, 1, "fp8", "float8e4m3fn", "FP8", T::kFloat32, "float8_e4m3fn"},
    TypeRow{T::kFloat8E4M3Fnuz, 1, "float8_e4m3fnuz", "float8e4m3fnuz", "FLOAT8E4M3FNUZ", T::kFloat32},
    TypeRow{T::kFloat8E5M2, 1, "float8_e5m2", "float8e5m2", "FLOAT8E5M2", T::kFloat32},
    TypeRow{T::kFloat8E5M2Fnuz, 1, "float8_e5m2fnuz", "float8e5m2fnuz", "FLOAT8E5M2FNUZ", T::kFloat32},
    TypeRow{T::kFloat8E8M0, 1, "float8_e8m0fnu", "float8e8m0", "E8M0", T::kFloat32},
    TypeRow{T::kFloat6E2M3, 1, "float6_e2m3fn", "float6e2m3", "FLOAT6E2M3", T::kFloat32},
    TypeRow{T::kFloat6E3M2, 1, "float6_e3m2fn", "float6e3m2", "FLOAT6E3M2", T::kFloat32},
    TypeRow{T::kFloat4E2M1, 1, "float4_e2m1fn", "float4e2m1", "FP4", T::kFloat32},
    TypeRow{T::kInt4, 1, "int4", "", "INT4", T::kInt8},
    TypeRow{T::kUInt4, 1, "uint4", "", "UINT4", T::kUInt8},
    TypeRow{T::kInt2, 1, "int2", "", "INT2", T::kInt8},
    TypeRow{T::kUInt2, 1, "uint2", "", "UINT2", T::kUInt8},
    TypeRow{T::kString, 0, "string", "", "STRING", T::kString},
};

constexpr const TypeRow& row_of(DataType type) noexcept { return kTypes[static_cast<std::size_t>(type)]; }

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  return true;
}
static_assert(rows_in_order());

}  // namespace

std::size_t size_of(DataType type) noexcept { return row_of(type).size; }
std::string_view name_of(DataType type) noexcept { return row_of(type).name; }
std::string_view tensorrt_name_of(DataType type) noexcept { return row_of(type).tensorrt; }

std::string_view ml_dtypes_name_of(DataType type) noexcept {
  return row_of(type).ml_dtypes.empty() ? row_of(type).name : row_of(type).ml_dtypes;
}

std::optional<DataType> data_type_from_name(std::string_view name) noexcept {
  for (const TypeRow& row : kTypes)
    if (row.size != 0 && !name.empty() && (row.name == name || row.alias == name || row.ml_dtypes == name))
      return row.type;
  return std::nullopt;
}

bool is_floating(DataType type) noexcept {
  return row_of(type).physical == DataType::kFloat32 || type == DataType::kFloat64;
}

bool is_integer(DataType type) noexcept {
  const DataType physical = row_of(type).physical;
  return physical >= DataType::kInt8 && physical <= DataType::kUInt64;
}

DataType physical_type(DataType type) noexcept { return row_of(type).physical; }

bool is_storage_only(DataType type) noexcept { return type >= DataType::kFloat8E4M3 && type <= DataType::kUInt2; }

}  // namespace ulpscope
