#include "graph/deferred_fold.h"

#include <array>
#include <memory>
#include <utility>

#include "core/file.h"
#include "core/memory.h"
#include "formats/stored_elements.h"
#include "graph/inference.h"
#include "graph/op.h"

namespace ulpscope {
namespace {

/// One input, moved by the layer's own kernel.
class Moved final : public TensorSource {
 public:
  Moved(Layer layer, Tensor input, Shape shape)
      : layer_(std::move(layer)), input_(std::move(input)), shape_(std::move(shape)) {}

  Tensor make() const override {
    const Tensor input = input_.in_memory();
    const std::array<const Tensor*, 1> inputs{&input};
    std::array<Tensor, 1> outputs{weights_tensor(input.type(), shape_)};
    const std::array<DataType, 1> types{input.type()};
    KernelContext context(layer_, inputs, outputs, types, nullptr);
    run_kernel(context);
    MappedFile::release(input.raw(), input.bytes());
    return std::move(outputs[0]);
  }

  const Tensor& input() const noexcept { return input_; }
  bool is_transpose() const {
    const auto permutation = layer_.attributes.integers("perm");
    return permutation.empty() || permutation == std::vector<std::int64_t>{1, 0};
  }

 private:
  const Layer layer_;
  const Tensor input_;
  const Shape shape_;
};

}  // namespace

Tensor deferred_fold(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs) {
  if (inputs.size() != 1 || inputs[0] == nullptr || layer.outputs.size() != 1) return {};
  const Tensor& input = *inputs[0];
  if (input.bytes() < StoredElements::kLeastBytes || input.type() != DataType::kFloat32) return {};
  const InferContext::Input known{true, network.tensor(layer.inputs[0]).type, &input.shape(), &input};
  const auto inferred = infer_layer(layer, {&known, 1});
  if (!inferred[0].shape) return {};
  if (layer.op->function == Function::kTranspose)
    return Tensor::deferred(input.type(), *inferred[0].shape,
                            std::make_shared<Moved>(layer, input, *inferred[0].shape));
  // Narrow floats are held as the float32 numbers that they are.
  if (layer.op->function == Function::kCast && inferred[0].type == DataType::kFloat32 && input.source() != nullptr)
    return input;
  return {};
}

Tensor transposed_matrix(const Tensor& value) {
  const auto source = value.source();
  const auto* moved = dynamic_cast<const Moved*>(source.get());
  const bool transposed = moved != nullptr && value.rank() == 2 && moved->input().rank() == 2 &&
                          value.shape() == Shape{moved->input().shape()[1], moved->input().shape()[0]};
  return transposed && moved->is_transpose() ? moved->input() : Tensor();
}

}  // namespace ulpscope
