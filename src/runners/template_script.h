// Scripts to start from: `ulpscope template trt-network|onnx-gs`.
#pragma once

#include <string>

namespace ulpscope {

/// A `load_network` for MODEL; for a network built by hand when `model` is empty.
std::string trt_network_template(const std::string& model);
/// A script that edits an ONNX model with onnx-graphsurgeon and saves it. `model` must be given.
std::string onnx_gs_template(const std::string& model);

}  // namespace ulpscope
