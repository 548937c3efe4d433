#include "graph/evaluate.h"

#include <fmt/format.h>

#include "core/messages.h"
#include "formats/rounding.h"
#include "graph/inference.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// Runs the sub-graphs of one layer with the interpreter.
class ReferenceRunner final : public SubgraphRunner {
 public:
  ReferenceRunner(const Layer& layer, std::span<const Tensor* const> inputs) : layer_(layer), inputs_(inputs) {}

  std::vector<Tensor> run(std::string_view attribute, std::span<const Tensor> inputs) override {
    const Subgraph& graph = layer_.attributes.required_graph(attribute);
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    for (int capture : graph.captures) {
      const auto index = static_cast<std::size_t>(capture);
      if (index >= inputs_.size() || inputs_[index] == nullptr)
        throw InternalError(fmt::format("layer '{}' captures an input that it does not have", layer_.name));
      all.push_back(*inputs_[index]);
    }
    return evaluate(*graph.network, all);
  }

 private:
  const Layer& layer_;
  std::span<const Tensor* const> inputs_;
};

/// The declared type when it fits what is there (float16 is held as float32), else the type of the elements.
DataType declared_type(const Network& network, TensorId id, const Tensor& tensor) {
  const DataType declared = id == kNone ? DataType::kUndefined : network.tensor(id).type;
  return declared != DataType::kUndefined && physical_type(declared) == tensor.type() ? declared : tensor.type();
}

Tensor rounded(Tensor tensor, DataType declared) {
  const Rounding rounding = rounding_of(declared);
  if (rounding == Rounding::kNone || tensor.type() != DataType::kFloat32) return tensor;
  Tensor result(DataType::kFloat32, tensor.shape());
  round_array(tensor.data<float>(), result.data<float>(), static_cast<std::size_t>(tensor.size()), rounding);
  return result;
}

}  // namespace

Tensor to_physical(const Tensor& tensor) {
  const DataType type = physical_type(tensor.type());
  return type == tensor.type() ? tensor : tensor.cast(type);
}

std::vector<Tensor> evaluate_layer(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs,
                                   SubgraphRunner* runner) {
  std::vector<Tensor> outputs(layer.outputs.size());
  if (layer.op->kind == OpKind::kConstant) {
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (layer.outputs[i] != kNone) outputs[i] = to_physical(network.tensor(layer.outputs[i]).value);
    return outputs;
  }
  if (layer.op->run == nullptr) throw InternalError(fmt::format("operator {} has no kernel", layer.op->name));

  std::vector<InferContext::Input> known(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    const TensorId id = layer.input(i);
    known[i] = {true, declared_type(network, id, *inputs[i]), &inputs[i]->shape(), inputs[i]};
  }
  const std::vector<InferContext::Output> inferred = infer_layer(layer, known);
  std::vector<DataType> types(outputs.size(), DataType::kUndefined);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (layer.outputs[i] == kNone) continue;
    types[i] = inferred[i].type != DataType::kUndefined ? inferred[i].type : network.tensor(layer.outputs[i]).type;
    if (types[i] == DataType::kUndefined)
      types[i] = DataType::kFloat32;  // only the kernel can tell: it sets the output
    if (inferred[i].shape) outputs[i] = Tensor(physical_type(types[i]), *inferred[i].shape);
  }
  ReferenceRunner reference(layer, inputs);
  KernelContext context(layer, inputs, outputs, types, runner != nullptr ? runner : &reference);
  run_kernel(context);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (layer.outputs[i] != kNone && !outputs[i])
      throw InternalError(fmt::format("layer '{}' ({}) left output {} unset", layer.name, layer.op->name, i));
  return outputs;
}

std::vector<Tensor> evaluate(const Network& network, std::span<const Tensor> inputs) {
  if (inputs.size() != network.inputs.size())
    throw invalid_argument("[evaluate] network '{}': expected {} inputs, got {}", network.name, network.inputs.size(),
                           inputs.size());
  IdMap<TensorId, Tensor> values(network.tensors.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& info = network.tensor(network.inputs[i]);
    Tensor value = to_physical(inputs[i]);
    if (info.type != DataType::kUndefined && physical_type(info.type) != value.type())
      throw invalid_argument("[evaluate] input '{}': expected {}, got {}", info.name, name_of(info.type),
                             name_of(inputs[i].type()));
    values[network.inputs[i]] = rounded(std::move(value), info.type);
  }

  // Tensors are freed after their last reader.
  IdMap<TensorId, LayerId> last_use(network.tensors.size());
  for (LayerId l : network.layers.ids())
    for (TensorId id : present(network.layers[l].inputs)) last_use[id] = l;
  for (TensorId id : network.outputs) last_use[id] = LayerId(network.layers.size());

  const auto value_of = [&](TensorId id) -> const Tensor& {
    Tensor& value = values[id];
    if (!value && network.tensor(id).value) value = to_physical(network.tensor(id).value);
    return value;
  };
  for (const auto& [l, layer] : network.layers.items()) {
    std::vector<const Tensor*> arguments;
    for (TensorId id : layer.inputs) arguments.push_back(id == kNone ? nullptr : &value_of(id));
    std::vector<Tensor> outputs = evaluate_layer(network, layer, arguments);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (layer.outputs[i] != kNone)
        values[layer.outputs[i]] = rounded(std::move(outputs[i]), network.tensor(layer.outputs[i]).type);
    for (TensorId id : present(layer.inputs))
      if (last_use[id] == l) values[id] = {};
  }
  std::vector<Tensor> results;
  for (TensorId id : network.outputs) results.push_back(value_of(id));
  return results;
}

}  // namespace ulpscope
