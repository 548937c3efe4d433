// Nodes rewritten for a newer opset of ai.onnx. Private to src/onnx.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onnx-ml.pb.h"

namespace ulpscope::onnx_model {

/// The number of dimensions of a value; -1: not known.
using RankOf = std::function<int(const std::string& value)>;

/// Why a node of the main graph that was written for opset `from` cannot be written for opset `to`: "Softmax 'x'", with
/// a reason in brackets where there is more to say. Empty: it can.
std::string upgrade_obstacle(const onnx::NodeProto& node, int from, int to, const RankOf& rank_of);

/// Rewrites it. `add_integers`: makes a one-dimensional constant with a name like the given one, and returns its name.
/// REQUIRES: there is no upgrade_obstacle().
void upgrade(onnx::NodeProto& node, int from, int to, const RankOf& rank_of,
             const std::function<std::string(const std::string& name, const std::vector<std::int64_t>&)>& add_integers);

}  // namespace ulpscope::onnx_model
