#include "ulpscope/data_type.h"

#include <array>

namespace ulpscope {
namespace {

struct TypeRow {
  DataType type;
  std::size_t size;
  std::string_view name;
  std::string_view alias;
  std::string_view tensorrt;
};

constexpr std::array kTypes{
    TypeRow{DataType::kUndefined, 0, "undefined", "", "UNDEFINED"},
    TypeRow{DataType::kFloat32, 4, "float32", "fp32", "FLOAT"},
    TypeRow{DataType::kFloat64, 8, "float64", "fp64", "DOUBLE"},
    TypeRow{DataType::kFloat16, 2, "float16", "fp16", "HALF"},
    TypeRow{DataType::kBFloat16, 2, "bfloat16", "bf16", "BF16"},
    TypeRow{DataType::kInt8, 1, "int8", "", "INT8"},
    TypeRow{DataType::kUInt8, 1, "uint8", "", "UINT8"},
    TypeRow{DataType::kInt16, 2, "int16", "", "INT16"},
    TypeRow{DataType::kUInt16, 2, "uint16", "", "UINT16"},
    TypeRow{DataType::kInt32, 4, "int32", "", "INT32"},
    TypeRow{DataType::kUInt32, 4, "uint32", "", "UINT32"},
    TypeRow{DataType::kInt64, 8, "int64", "", "INT64"},
    TypeRow{DataType::kUInt64, 8, "uint64", "", "UINT64"},
    TypeRow{DataType::kBool, 1, "bool", "", "BOOL"},
    TypeRow{DataType::kFloat8E4M3, 1, "fp8", "float8e4m3fn", "FP8"},
    TypeRow{DataType::kString, 0, "string", "", "STRING"},
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

std::optional<DataType> data_type_from_name(std::string_view name) noexcept {
  for (const TypeRow& row : kTypes)
    if (row.size != 0 && (row.name == name || (!row.alias.empty() && row.alias == name))) return row.type;
  return std::nullopt;
}

std::optional<DataType> data_type_from_tensorrt_name(std::string_view name) noexcept {
  for (const TypeRow& row : kTypes)
    if (row.size != 0 && row.tensorrt == name) return row.type;
  return std::nullopt;
}

bool is_floating(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kFloat64:
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kFloat8E4M3:
      return true;
    default:
      return false;
  }
}

bool is_integer(DataType type) noexcept { return type >= DataType::kInt8 && type <= DataType::kUInt64; }

DataType physical_type(DataType type) noexcept {
  return is_floating(type) && size_of(type) < size_of(DataType::kFloat32) ? DataType::kFloat32 : type;
}

}  // namespace ulpscope
