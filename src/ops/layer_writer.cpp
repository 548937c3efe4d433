#include "ops/layer_writer.h"

#include <fmt/format.h>

#include "ops/registry.h"
#include "ulpscope/error.h"

namespace ulpscope {

TensorId LayerWriter::input(std::string name, const Shape& shape, DataType type) {
  network_.inputs.push_back(network_.add_tensor({.name = std::move(name), .type = type, .shape = shape}));
  return network_.inputs.back();
}

TensorId LayerWriter::initializer(const std::string& name, Tensor value) {
  if (const TensorId known = network_.find_tensor(name); known != kNone) return known;
  const DataType type = value.type();
  const Shape shape = value.shape();
  return network_.add_tensor({.name = name, .type = type, .shape = shape, .value = std::move(value)});
}

TensorId LayerWriter::constant(const Tensor& value) {
  const TensorId made = layer("Constant", {}, 1)[0];
  TensorInfo& info = network_.tensor(made);
  info.type = value.type();
  info.shape = value.shape();
  info.value = value;
  return made;
}

LayerWriter::Ids LayerWriter::layer(std::string_view op, Ids inputs, int outputs, Attributes attributes,
                                    std::string name) {
  Layer layer;
  layer.name = name.empty() ? fmt::format("{}_{}", op, network_.layers.size()) : std::move(name);
  layer.op = op_registry().find("", op);
  if (layer.op == nullptr) throw InternalError(fmt::format("the registry has no operator {}", op));
  layer.opset = opset_;
  layer.nodes = {layer.name};
  layer.inputs = std::move(inputs);
  for (auto& [key, value] : attributes) layer.attributes.set(std::move(key), std::move(value));
  for (int i = 0; i < outputs; ++i)
    layer.outputs.push_back(network_.add_tensor(
        {.name = outputs == 1 ? layer.name : fmt::format("{}.{}", layer.name, i), .type = DataType::kFloat32}));
  Ids made = layer.outputs;
  network_.add_layer(std::move(layer));
  return made;
}

}  // namespace ulpscope
