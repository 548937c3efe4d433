// Networks built by hand, for tests.
#pragma once

#include <string>
#include <vector>

#include "graph/network.h"
#include "ops/registry.h"

namespace ulpscope::testing {

struct NetworkBuilder {
  Network network;

  TensorId tensor(const std::string& name, DataType type = DataType::kUndefined) {
    const TensorId found = network.find_tensor(name);
    if (found != kNone) return found;
    TensorInfo info;
    info.name = name;
    info.type = type;
    return network.add_tensor(std::move(info));
  }
  void input(const std::string& name, DataType type = DataType::kFloat32) {
    network.inputs.push_back(tensor(name, type));
  }
  void output(const std::string& name) { network.outputs.push_back(tensor(name)); }
  /// A Constant layer of the same name.
  void constant(const std::string& name, Tensor value) {
    const TensorId id = tensor(name, value.type());
    network.tensor(id).value = std::move(value);
    layer("Constant", {}, {name}, name);
  }
  /// A tensor with a value and no layer.
  void weight(const std::string& name, Tensor value) {
    const TensorId id = tensor(name, value.type());
    network.tensor(id).value = std::move(value);
  }
  /// "" is an absent input or output.
  Layer& layer(const std::string& op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
               const std::string& name, int opset = 17) {
    Layer layer;
    layer.op = op_registry().find("", op);
    layer.name = name;
    layer.opset = opset;
    for (const auto& input : inputs) layer.inputs.push_back(input.empty() ? kNone : tensor(input));
    for (const auto& output : outputs) layer.outputs.push_back(output.empty() ? kNone : tensor(output));
    return network.layer(network.add_layer(std::move(layer)));
  }
};

}  // namespace ulpscope::testing
