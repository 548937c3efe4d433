#include "ops/onnx_types.h"

#include <fmt/format.h>

#include "graph/element_type.h"
#include "ops/common.h"

namespace ulpscope::ops {
DataType data_type_from_onnx(const Layer& layer, std::int64_t number) {
  if (!defines_onnx_type(number)) fail(layer, fmt::format("{} is not an element type of ONNX", number));
  const std::optional<DataType> type = from_onnx_type(number);
  if (!type)
    fail(layer, fmt::format("elements of type {} are not supported", onnx_type_name(number)), ErrorCode::kUnsupported);
  return *type;
}

DataType dtype_attribute(const Layer& layer, DataType otherwise) {
  const std::int64_t number = layer.attributes.integer("dtype", 0);
  return number == 0 ? otherwise : data_type_from_onnx(layer, number);
}

}  // namespace ulpscope::ops
