#include "ops/onnx_types.h"

#include <fmt/format.h>

#include "graph/element_type.h"
#include "graph/network.h"
#include "ulpscope/error.h"

namespace ulpscope::ops {
DataType data_type_from_onnx(const Layer& layer, std::int64_t number) {
  if (!defines_onnx_type(number))
    throw Error(ErrorCode::kInvalidFile,
                fmt::format("layer '{}' ({}): {} is not an element type of ONNX", layer.name, layer.op->name, number));
  const std::optional<DataType> type = from_onnx_type(number);
  if (!type)
    throw Error(ErrorCode::kUnsupported, fmt::format("layer '{}' ({}): elements of type {} are not supported",
                                                     layer.name, layer.op->name, onnx_type_name(number)));
  return *type;
}

DataType dtype_attribute(const Layer& layer, DataType otherwise) {
  const std::int64_t number = layer.attributes.integer("dtype", 0);
  return number == 0 ? otherwise : data_type_from_onnx(layer, number);
}

}  // namespace ulpscope::ops
