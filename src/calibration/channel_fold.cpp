#include "calibration/channel_fold.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ulpscope {
namespace {

const Tensor* float_constant(const Network& network, TensorId id) {
  if (id == kNone) return nullptr;
  const TensorInfo& info = network.tensor(id);
  const bool plain = info.producer == kNone || network.layer(info.producer).op->kind == OpKind::kConstant;
  if (!plain || !info.value || info.value.type() != DataType::kFloat32 || info.value.size() == 0) return nullptr;
  return &info.value;
}

}  // namespace

const Tensor* constant_input(const Network& network, const Layer& layer, std::size_t index) {
  return float_constant(network, layer.input(index));
}

std::optional<Fold> Folder::fold(TensorId tensor, bool copies) const {
  Fold result;
  result.tensor = tensor;
  result.copies = copies;
  if (network_.tensor(tensor).value || (!copies && network_.is_output(tensor))) return {};
  for (LayerId id : consumers_[tensor]) {
    if (add_reader(id, result))
      result.readers.push_back(id);
    else if (!copies)
      return {};
  }
  result.reader_edits = result.edits.size();
  if (result.channels < 2 || (!copies && !fold_producer(tensor, result))) return {};
  return result;
}

bool Folder::add_reader(LayerId id, Fold& fold) const {
  const Layer& layer = network_.layer(id);
  const Function op = layer.op->function;
  const Tensor* weights = constant_input(network_, layer, 1);
  if (std::ranges::count(layer.inputs, fold.tensor) != 1 || layer.inputs[0] != fold.tensor || weights == nullptr)
    return false;
  const Shape& shape = weights->shape();
  Edit edit{id, 1, 1, shape, 0, 0};
  std::int64_t channels = 0;
  std::size_t trailing = 0;
  if (op == Function::kMatMul && shape.size() >= 2) {
    edit.axis = shape.size() - 2;
    channels = shape[edit.axis];
  } else if (op == Function::kGemm && shape.size() == 2 && layer.attributes.integer("transA", 0) == 0) {
    edit.axis = layer.attributes.integer("transB", 0) != 0 ? 1 : 0;
    channels = shape[edit.axis];
  } else if (is_convolution(op) && shape.size() >= 3) {
    const std::int64_t groups = layer.attributes.integer("group", 1);
    trailing = shape.size() - 2;
    if (groups < 1 || shape[0] % groups != 0) return false;
    if (op == Function::kConv) {
      edit.axis = 1;
      edit.per_group = groups == 1 ? 0 : shape[0] / groups;
      channels = shape[1] * groups;
    } else {
      channels = shape[0];
    }
  } else {
    return false;
  }
  if (fold.channels != 0 && (channels != fold.channels || trailing != fold.trailing)) return false;
  fold.channels = channels;
  fold.trailing = trailing;
  fold.edits.push_back(std::move(edit));
  return true;
}

bool Folder::fold_pointwise(LayerId id, std::size_t input, int sign, std::size_t trailing, Fold& fold) const {
  const Tensor* value = constant_input(network_, network_.layer(id), input);
  if (value == nullptr) return false;
  Shape shape = value->shape();
  if (shape.size() < trailing + 1) shape.insert(shape.begin(), trailing + 1 - shape.size(), 1);
  const std::size_t axis = shape.size() - 1 - trailing;
  if (shape[axis] != 1 && shape[axis] != fold.channels) return false;
  shape[axis] = fold.channels;
  fold.edits.push_back({id, input, sign, std::move(shape), axis, 0});
  return true;
}

bool Folder::fold_vector(LayerId id, std::size_t input, Fold& fold) const {
  const Tensor* value = constant_input(network_, network_.layer(id), input);
  return value != nullptr && value->shape() == Shape{fold.channels} && fold_pointwise(id, input, -1, 0, fold);
}

bool Folder::fold_weights(LayerId id, Fold& fold) const {
  const Layer& layer = network_.layer(id);
  const Function op = layer.op->function;
  const Tensor* weights = constant_input(network_, layer, 1);
  if (weights == nullptr) return false;
  const Shape& shape = weights->shape();
  Edit edit{id, 1, -1, shape, 0, 0};
  std::int64_t channels = 0;
  if (is_convolution(op)) {
    if (shape.size() != fold.trailing + 2) return false;
    const std::int64_t groups = layer.attributes.integer("group", 1);
    channels = shape[0];
    if (op == Function::kConvTranspose) {
      if (groups < 1 || shape[0] % groups != 0) return false;
      edit.axis = 1;
      edit.per_group = groups == 1 ? 0 : shape[0] / groups;
      channels = shape[1] * groups;
    }
    if (channels != fold.channels || (layer.input(2) != kNone && !fold_vector(id, 2, fold))) return false;
  } else {
    if (fold.trailing != 0 || shape.size() < 2) return false;
    const bool gemm = op == Function::kGemm;
    edit.axis = shape.size() - (gemm && layer.attributes.integer("transB", 0) != 0 ? 2 : 1);
    channels = shape[edit.axis];
    if (channels != fold.channels || (gemm && layer.input(2) != kNone && !fold_pointwise(id, 2, -1, 0, fold)))
      return false;
  }
  fold.edits.push_back(std::move(edit));
  return true;
}

bool Folder::pass(TensorId input, Fold& fold) const {
  if (input == kNone || network_.tensor(input).value || network_.is_output(input)) return false;
  return consumers_[input].size() == 1 && fold_producer(input, fold);
}

bool Folder::fold_producer(TensorId tensor, Fold& fold) const {
  const LayerId id = network_.tensor(tensor).producer;
  if (id == kNone) return false;
  const Layer& layer = network_.layer(id);
  const Function op = layer.op->function;
  if (layer.inputs.empty() || !layer.op->domain.empty() ||
      std::ranges::count_if(layer.outputs, [](TensorId t) { return t != kNone; }) != 1)
    return false;
  fold.passed.push_back(id);
  const auto constant = [&](std::size_t i) { return constant_input(network_, layer, i) != nullptr; };
  if (op == Function::kMul) {
    return (constant(1) && fold_pointwise(id, 1, -1, fold.trailing, fold)) ||
           (constant(0) && fold_pointwise(id, 0, -1, fold.trailing, fold));
  }
  if (op == Function::kDiv) return constant(1) && fold_pointwise(id, 1, 1, fold.trailing, fold);
  if (op == Function::kAdd || op == Function::kSub) {
    const std::size_t side = constant(1) ? 1 : 0;
    // A summand of one element has no int8 form, the vector that it would become has one.
    return constant(side) && constant_input(network_, layer, side)->size() > 1 &&
           fold_pointwise(id, side, -1, fold.trailing, fold) && pass(layer.inputs[1 - side], fold);
  }
  if (is_product(op)) return fold_weights(id, fold);
  // Axis 1 holds the channels where the reader is a convolution.
  if (op == Function::kBatchNormalization || op == Function::kInstanceNormalization)
    return fold.trailing > 0 && layer.attributes.integer("training_mode", 0) == 0 && fold_vector(id, 1, fold) &&
           fold_vector(id, 2, fold);
  if (op == Function::kLayerNormalization)
    return fold.trailing == 0 && fold_vector(id, 1, fold) && (layer.input(2) == kNone || fold_vector(id, 2, fold));
  if (op == Function::kRelu || op == Function::kLeakyRelu || op == Function::kPRelu || op == Function::kIdentity)
    return pass(layer.inputs[0], fold);
  if (op == Function::kMaxPool) return fold.trailing > 0 && pass(layer.inputs[0], fold);
  return false;
}

std::int64_t inner_of(const Edit& edit) {
  std::int64_t inner = 1;
  for (std::size_t d = edit.axis + 1; d < edit.shape.size(); ++d) inner *= edit.shape[d];
  return inner;
}

std::int64_t channel_of(const Edit& edit, std::int64_t element, std::int64_t inner) {
  const std::int64_t within = element / inner % edit.shape[edit.axis];
  if (edit.per_group == 0) return within;
  return within + element / (inner * edit.shape[edit.axis]) / edit.per_group * edit.shape[edit.axis];
}

std::optional<Tensor> rescaled(const Tensor& given, const Edit& edit, std::span<const std::int8_t> exponents) {
  const Tensor value = given.in_memory();
  Tensor result(DataType::kFloat32, edit.shape);
  const float* in = value.data<float>();
  float* out = result.data<float>();
  const std::int64_t inner = inner_of(edit), length = edit.shape[edit.axis];
  // Only the axis of the channels may have grown, from 1.
  const bool grown = value.size() != result.size();
  std::vector<float> factors(exponents.size());
  for (std::size_t k = 0; k < factors.size(); ++k) factors[k] = std::ldexp(1.0f, edit.sign * exponents[k]);
  bool rounds = false;
  for (std::int64_t block = 0; block < result.size() / inner; ++block) {
    const float factor = factors[channel_of(edit, block * inner, inner)];
    const float* from = in + (grown ? block / length : block) * inner;
    float* to = out + block * inner;
    // A product with a power of two is exact while it stays a normal number; so do zeros, infinities and NaN.
    std::int32_t lost = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      to[i] = from[i] * factor;
      const std::int32_t before = std::bit_cast<std::int32_t>(from[i]) & 0x7fffffff;
      const std::int32_t after = std::bit_cast<std::int32_t>(to[i]) & 0x7fffffff;
      const bool was_number = (before != 0) & (before < 0x7f800000),
                 is_normal = (after >= 0x00800000) & (after < 0x7f800000);
      lost |= was_number & !is_normal;
    }
    rounds |= lost != 0 && factor != 1.0f;
  }
  if (rounds) return std::nullopt;
  return result;
}

bool is_exact_for(const Network& network, const Fold& fold, std::span<const std::int8_t> exponents) {
  return std::ranges::all_of(fold.edits, [&](const Edit& edit) {
    return rescaled(*constant_input(network, network.layer(edit.layer), edit.input), edit, exponents).has_value();
  });
}

}  // namespace ulpscope
