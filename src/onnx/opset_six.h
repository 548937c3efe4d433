// Models of opsets 1 to 6, which become models of opset 7 as they are read. Private to src/onnx.
#pragma once

#include "onnx/model_file.h"

namespace ulpscope::onnx_model {

/// Rewrites a model of opsets 1 to 6 for opset 7; leaves others alone. They differ in how operands are aligned (the
/// attributes `broadcast` and `axis`, slopes of PRelu per channel), in what asked for training, and in some attributes
/// (the shape of Reshape, types as words). Throws Error for layers in their form for training, for Split and Tile whose
/// inputs were others, and where ranks that decide are not known.
void raise_opset_six(ModelFile& file);

}  // namespace ulpscope::onnx_model
