// Element types as ONNX numbers them, under the names that this folder uses.
#pragma once

#include "graph/element_type.h"

namespace ulpscope::onnx_model {

using ulpscope::from_onnx_type;
using ulpscope::onnx_type_name;
using ulpscope::to_onnx_type;

}  // namespace ulpscope::onnx_model
