// An assignment of precisions in the words of other tools, as the content of files. All take the specialization that
// the assignment was made for; layers without float arithmetic are left out.
#pragma once

#include <string>
#include <string_view>

#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// Words for --layer-precisions, one layer:type per line.
std::string layer_precisions_form(const Specialization& spec, const Assignment& assignment);

/// A script for `polygraphy run --trt-network-postprocess-script` and the like, up to TensorRT 10. It sets layers that
/// stay in float32, and those with an entry in `requested` (one per layer); others take the lowest precision that the
/// builder allows; those networks do not reach into bodies. `flags` are the builder's (" --fp16"), for the command in
/// the script's text.
std::string postprocess_script(const Specialization& spec, const Assignment& assignment, const Requests& requested,
                               std::string_view flags);

/// The ONNX nodes in float32, as JSON: `nodes_to_exclude` of ModelOpt AutoCast (regular expressions) and
/// `node_block_list` of onnxconverter-common's float16 converter (names).
std::string exclusions(const Specialization& spec, const Assignment& assignment);

}  // namespace ulpscope
