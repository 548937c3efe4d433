// Models of opset 6, which become models of opset 7 as they are read. Private to src/onnx.
#pragma once

#include "onnx/model_file.h"

namespace ulpscope::onnx_model {

/// Rewrites a model of opset 6 for opset 7; leaves others alone. The two differ in how operands are aligned (the
/// attributes `broadcast` and `axis`, slopes of PRelu per channel), and in what asked for training. Throws Error for
/// layers in their form for training, and where ranks that decide are not known.
void raise_opset_six(ModelFile& file);

}  // namespace ulpscope::onnx_model
