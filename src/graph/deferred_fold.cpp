#include "graph/deferred_fold.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/parallel.h"
#include "formats/stored_elements.h"
#include "graph/inference.h"
#include "graph/op.h"

namespace ulpscope {
namespace {

/// One input, moved or converted by the layer's own kernel.
class Moved final : public TensorSource {
 public:
  /// `type`: of the values; they are held as float32.
  Moved(Layer layer, Tensor input, DataType type, Shape shape)
      : layer_(std::move(layer)), input_(std::move(input)), type_(type), shape_(std::move(shape)) {}

  Tensor make() const override {
    const Tensor input = input_.in_memory();
    Tensor result(input.type(), shape_);
    if (is_transpose() && input.rank() == 2)
      transpose(input, result);
    else
      run(input, result);
    MappedFile::release(input.raw(), input.bytes());
    return result;
  }

  const Tensor& input() const noexcept { return input_; }
  bool is_transpose() const {
    if (layer_.op->function != Function::kTranspose) return false;
    const auto permutation = layer_.attributes.ints("perm");
    return permutation.empty() || permutation == std::vector<std::int64_t>{1, 0};
  }

 private:
  void run(const Tensor& input, Tensor& output) const {
    const std::array<const Tensor*, 1> inputs{&input};
    const std::array<DataType, 1> types{type_};
    KernelContext context(layer_, inputs, {&output, 1}, types, nullptr);
    run_kernel(context);
  }

  /// Some rows at a time, so that what is mapped and its copy are never both in memory as a whole.
  void transpose(const Tensor& input, Tensor& output) const {
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
    const std::int64_t rows = input.shape()[0], columns = input.shape()[1];
    const std::int64_t most = std::clamp<std::int64_t>(kPiece / std::max<std::int64_t>(columns, 1), 1, rows);
    if (most == rows) return run(input, output);
    const std::size_t size = size_of(input.type());
    const auto* in = static_cast<const std::byte*>(input.raw());
    auto* out = static_cast<std::byte*>(output.raw());
    for (std::int64_t row = 0; row < rows; row += most) {
      const std::int64_t count = std::min(most, rows - row);
      void* const first = const_cast<std::byte*>(in) + static_cast<std::size_t>(row * columns) * size;
      const Tensor piece = Tensor::borrow(input.type(), {count, columns}, first, nullptr);
      Tensor turned(input.type(), {columns, count});
      run(piece, turned);
      const auto* from = static_cast<const std::byte*>(turned.raw());
      const std::size_t bytes = static_cast<std::size_t>(count) * size;
      parallel_for(columns, items_per_task(columns, count), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c)
          std::memcpy(out + static_cast<std::size_t>(c * rows + row) * size, from + static_cast<std::size_t>(c) * bytes,
                      bytes);
      });
      MappedFile::release(piece.raw(), piece.bytes());
    }
  }

  const Layer layer_;
  const Tensor input_;
  const DataType type_;
  const Shape shape_;
};

bool is_held_as_float(DataType type) { return is_floating(type) && physical_type(type) == DataType::kFloat32; }

/// Of a layer whose inputs fit each other.
Tensor dequantized(const Layer& layer, std::span<const Tensor* const> inputs, const Shape& shape) {
  if (inputs[1] == nullptr) return {};
  std::int64_t axis = layer.attributes.integer("axis", 1);
  if (axis < 0) axis += static_cast<std::int64_t>(shape.size());
  const auto layout =
      DequantizedElements::layout(shape, inputs[1]->shape(), axis, layer.attributes.integer("block_size", 0));
  const Tensor zeros = inputs.size() > 2 && inputs[2] != nullptr ? *inputs[2] : Tensor();
  const std::int64_t scales = inputs[1]->size();
  if (!layout || scales == 0 || (zeros && zeros.size() != 1 && zeros.size() != scales)) return {};
  return Tensor::deferred(DataType::kFloat32, shape,
                          std::make_shared<DequantizedElements>(*inputs[0], *layout, *inputs[1], zeros));
}

}  // namespace

Tensor deferred_fold(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs) {
  if (inputs.empty() || inputs[0] == nullptr || layer.outputs.size() != 1) return {};
  const Tensor& input = *inputs[0];
  const Function function = layer.op->function;
  const bool dequantizes = function == Function::kDequantize && inputs.size() > 1;
  if (!dequantizes && (inputs.size() != 1 || input.type() != DataType::kFloat32)) return {};
  if (input.size() * static_cast<std::int64_t>(sizeof(float)) < std::int64_t{StoredElements::kLeastBytes}) return {};
  std::vector<InferContext::Input> known;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    known.push_back(inputs[i] == nullptr ? InferContext::Input{}
                                         : InferContext::Input{true, network.tensor(layer.inputs[i]).type,
                                                               &inputs[i]->shape(), inputs[i]});
  const auto inferred = infer_layer(layer, known);
  if (!inferred[0].shape || !is_held_as_float(inferred[0].type)) return {};
  if (dequantizes) return dequantized(layer, inputs, *inferred[0].shape);
  const auto moved = [&] {
    return Tensor::deferred(input.type(), *inferred[0].shape,
                            std::make_shared<Moved>(layer, input, inferred[0].type, *inferred[0].shape));
  };
  if (function == Function::kTranspose) return moved();
  if (function != Function::kCast || input.source() == nullptr) return {};
  // Narrow floats are held as the float32 numbers that they are.
  return inferred[0].type == DataType::kFloat32 ? input : moved();
}

Tensor transposed_matrix(const Tensor& value) {
  const auto source = value.source();
  const auto* moved = dynamic_cast<const Moved*>(source.get());
  const bool transposed = moved != nullptr && value.rank() == 2 && moved->input().rank() == 2 &&
                          value.shape() == Shape{moved->input().shape()[1], moved->input().shape()[0]};
  return transposed && moved->is_transpose() ? moved->input() : Tensor();
}

std::optional<DequantizedMatrix> dequantized_matrix(const Tensor& value, bool transposed) {
  const Tensor inner = transposed_matrix(value);
  if (inner) transposed = !transposed;
  auto elements = std::dynamic_pointer_cast<const DequantizedElements>((inner ? inner : value).source());
  const auto codes = elements == nullptr ? std::nullopt : elements->matrix(transposed);
  return codes ? std::optional(DequantizedMatrix{std::move(elements), transposed, *codes}) : std::nullopt;
}

}  // namespace ulpscope
