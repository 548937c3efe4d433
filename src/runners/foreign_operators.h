// Operators that ulpscope does not have, carried out by ONNX Runtime.
#pragma once

#include "graph/op.h"

namespace ulpscope {

/// The operators of `op_registry`, and in `find_elsewhere` those that the ONNX Runtime of the Python worker has beside
/// them (com.microsoft, ai.onnx.ml, ...). Such a layer runs in a session of its own, in float32 on one thread, is never
/// lowered, and has no derivative; what it costs is not estimated. Nothing is found elsewhere, and a warning says why,
/// where there is no ONNX Runtime. Lives as long as the process; may be used from any thread.
const OpRegistry& registry_with_onnxruntime();

}  // namespace ulpscope
