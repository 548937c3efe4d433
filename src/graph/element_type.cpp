#include "graph/element_type.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace ulpscope {
namespace {

struct Row {
  std::string_view name;
  DataType type = DataType::kUndefined;
};

// In the order of the numbers, from 0.
constexpr std::array kRows{
    Row{"undefined"},
    Row{"float32", DataType::kFloat32},
    Row{"uint8", DataType::kUInt8},
    Row{"int8", DataType::kInt8},
    Row{"uint16", DataType::kUInt16},
    Row{"int16", DataType::kInt16},
    Row{"int32", DataType::kInt32},
    Row{"int64", DataType::kInt64},
    Row{"string"},
    Row{"bool", DataType::kBool},
    Row{"float16", DataType::kFloat16},
    Row{"float64", DataType::kFloat64},
    Row{"uint32", DataType::kUInt32},
    Row{"uint64", DataType::kUInt64},
    Row{"complex64"},
    Row{"complex128"},
    Row{"bfloat16", DataType::kBFloat16},
    Row{"float8e4m3fn", DataType::kFloat8E4M3},
    Row{"float8e4m3fnuz", DataType::kFloat8E4M3Fnuz},
    Row{"float8e5m2", DataType::kFloat8E5M2},
    Row{"float8e5m2fnuz", DataType::kFloat8E5M2Fnuz},
    Row{"uint4", DataType::kUInt4},
    Row{"int4", DataType::kInt4},
    Row{"float4e2m1", DataType::kFloat4E2M1},
    Row{"float8e8m0", DataType::kFloat8E8M0},
    Row{"uint2", DataType::kUInt2},
    Row{"int2", DataType::kInt2},
    Row{"float6e2m3", DataType::kFloat6E2M3},
    Row{"float6e3m2", DataType::kFloat6E3M2},
};

}  // namespace

bool defines_onnx_type(std::int64_t number) noexcept {
  return number > 0 && static_cast<std::size_t>(number) < kRows.size();
}

std::optional<DataType> from_onnx_type(std::int64_t number) noexcept {
  if (!defines_onnx_type(number) && number != 0) return std::nullopt;
  const DataType type = kRows[number].type;
  return type == DataType::kUndefined ? std::nullopt : std::optional(type);
}

int to_onnx_type(DataType type) noexcept {
  for (std::size_t i = 1; i < kRows.size(); ++i)
    if (kRows[i].type == type && type != DataType::kUndefined) return static_cast<int>(i);
  return 0;
}

std::string onnx_type_name(std::int64_t number) {
  if (!defines_onnx_type(number) && number != 0) return fmt::format("type {}", number);
  return std::string(kRows[number].name);
}

}  // namespace ulpscope
