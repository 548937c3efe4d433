// Element types as ONNX attributes number them (TensorProto.DataType in onnx.proto).
#pragma once

#include "graph/op.h"

namespace ulpscope::ops {

/// The type that an attribute (`to`, `dtype`) means. Throws Error, naming the layer: kUnsupported for one that ulpscope
/// has no values of, kInvalidFile for a number that ONNX does not define.
DataType data_type_from_onnx(const Layer& layer, std::int64_t number);

/// The type in the attribute `dtype`, or `otherwise` when it is absent.
DataType dtype_attribute(const Layer& layer, DataType otherwise);

}  // namespace ulpscope::ops
