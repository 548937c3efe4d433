// Constants that a file stores as elements.
#pragma once

#include "graph/network.h"

namespace ulpscope {

/// A DequantizeLinear (ONNX's or TensorRT's) makes it of elements that the file stores; layers behind that may have
/// moved it. A typed file keeps these elements and their scales as they are.
bool is_dequantized_constant(const Network& network, TensorId id);

}  // namespace ulpscope
