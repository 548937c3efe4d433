// Which operators ONNX defines for narrow floats, and since which opset.
#pragma once

#include <string_view>

#include "ulpscope/data_type.h"

namespace ulpscope {

/// True if an operator of this opset takes and gives float16 (bfloat16) wherever it takes and gives float32, parameters
/// aside (scales of Resize, ratio of Dropout). Operators of other domains than ai.onnx: true.
bool onnx_accepts(std::string_view domain, std::string_view op, int opset, DataType type) noexcept;

/// True if the schema has the type at this opset, but the operator is defined by a function with constants in float32,
/// with which it does not go: onnx.checker refuses it, and onnx_accepts() is false.
bool onnx_defines_in_float(std::string_view domain, std::string_view op, int opset, DataType type) noexcept;

/// The lowest opset from `opset` on at which that holds; 0: none that is known.
int onnx_accepts_since(std::string_view domain, std::string_view op, int opset, DataType type) noexcept;

/// True if a node written for opset `from` means the same at opset `to`: only types and absent options were added.
bool onnx_means_the_same(std::string_view domain, std::string_view op, int from, int to) noexcept;

}  // namespace ulpscope
