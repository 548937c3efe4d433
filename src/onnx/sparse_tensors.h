// Sparse constants, which networks do not have. Private to src/onnx.
#pragma once

#include "onnx/model_file.h"

namespace ulpscope::onnx_model {

/// Makes sparse initializers, and the sparse values of Constant nodes, dense ones with raw_data of their own, in
/// graphs, their bodies and functions. Throws Error for indices that do not fit, for elements in external data, and for
/// tensors that are large without having elements.
void make_dense(ModelFile& file);

}  // namespace ulpscope::onnx_model
