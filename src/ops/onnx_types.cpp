#include "ops/onnx_types.h"

#include <fmt/format.h>

#include <array>

#include "graph/network.h"
#include "ulpscope/error.h"

namespace ulpscope::ops {
namespace {

struct Row {
  std::string_view name;
  DataType type;
};

constexpr DataType kNo = DataType::kUndefined;
constexpr std::array kTypes{Row{"UNDEFINED", kNo},
                            Row{"FLOAT", DataType::kFloat32},
                            Row{"UINT8", DataType::kUInt8},
                            Row{"INT8", DataType::kInt8},
                            Row{"UINT16", DataType::kUInt16},
                            Row{"INT16", DataType::kInt16},
                            Row{"INT32", DataType::kInt32},
                            Row{"INT64", DataType::kInt64},
                            Row{"STRING", kNo},
                            Row{"BOOL", DataType::kBool},
                            Row{"FLOAT16", DataType::kFloat16},
                            Row{"DOUBLE", DataType::kFloat64},
                            Row{"UINT32", DataType::kUInt32},
                            Row{"UINT64", DataType::kUInt64},
                            Row{"COMPLEX64", kNo},
                            Row{"COMPLEX128", kNo},
                            Row{"BFLOAT16", DataType::kBFloat16},
                            Row{"FLOAT8E4M3FN", kNo},
                            Row{"FLOAT8E4M3FNUZ", kNo},
                            Row{"FLOAT8E5M2", kNo},
                            Row{"FLOAT8E5M2FNUZ", kNo},
                            Row{"UINT4", kNo},
                            Row{"INT4", kNo},
                            Row{"FLOAT4E2M1", kNo},
                            Row{"FLOAT8E8M0", kNo},
                            Row{"UINT2", kNo},
                            Row{"INT2", kNo}};

}  // namespace

DataType data_type_from_onnx(const Layer& layer, std::int64_t number) {
  if (number < 1 || number >= static_cast<std::int64_t>(kTypes.size()))
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("layer '{}' ({}): {} is not an element type of ONNX", layer.name, layer.op->name, number));
  const Row& row = kTypes[static_cast<std::size_t>(number)];
  if (row.type == kNo)
    throw Error(ErrorCode::kUnsupported, fmt::format("layer '{}' ({}): elements of type {} are not supported",
                                                     layer.name, layer.op->name, row.name));
  return row.type;
}

DataType dtype_attribute(const Layer& layer, DataType otherwise) {
  const std::int64_t number = layer.attributes.integer("dtype", 0);
  return number == 0 ? otherwise : data_type_from_onnx(layer, number);
}

}  // namespace ulpscope::ops
