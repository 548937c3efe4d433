#include "ops/forms.h"

#include <numeric>

namespace ulpscope::ops {

bool is_transposed_convolution(const Layer& layer) { return layer.op->function == Function::kConvTranspose; }
bool is_convolution(const Layer& layer) { return is_convolution(layer.op->function); }
bool is_resize(const Layer& layer) {
  return layer.op->function == Function::kResize || layer.op->function == Function::kUpsample;
}
bool is_cast(const Layer& layer) { return layer.op->casts; }
bool is_quantize(const Layer& layer) { return layer.op->function == Function::kQuantize; }
bool is_dequantize(const Layer& layer) { return layer.op->function == Function::kDequantize; }
bool has_channel_parameters(const Layer& layer) { return layer.op->function == Function::kInstanceNormalization; }

std::optional<IntegerProductForm> integer_product_form(const Layer& layer) {
  const std::string_view name = layer.op->name;
  if (layer.op->domain == "com.microsoft" && name == "QGemm") {
    IntegerProductForm form{false, true, 3, 2, 5};
    form.bias = 6;
    form.out_scale = 7;
    form.out_zero = 8;
    form.transpose = layer.attributes.integer("transA", 0) != 0;
    form.transpose_weights = layer.attributes.integer("transB", 0) != 0;
    form.factor = layer.attributes.real("alpha", 1);
    return form;
  }
  if (layer.op->domain != "") return std::nullopt;
  if (name == "MatMulInteger" || name == "ConvInteger") return IntegerProductForm{.convolution = name == "ConvInteger"};
  if (name != "QLinearMatMul" && name != "QLinearConv") return std::nullopt;
  return IntegerProductForm{name == "QLinearConv", true, 3, 2, 5};
}

std::optional<ByteLayer> byte_layer(const Layer& layer) {
  if (layer.op->domain != "com.microsoft" || layer.attributes.integer("channels_last", 0) != 0) return std::nullopt;
  constexpr std::pair<std::string_view, ByteLayer> kLayers[] = {
      {"QLinearAdd", ByteLayer::kAdd},
      {"QLinearMul", ByteLayer::kMul},
      {"QLinearSigmoid", ByteLayer::kSigmoid},
      {"QLinearLeakyRelu", ByteLayer::kLeakyRelu},
      {"QLinearGlobalAveragePool", ByteLayer::kGlobalAveragePool},
      {"QLinearAveragePool", ByteLayer::kAveragePool},
      {"QLinearConcat", ByteLayer::kConcat},
  };
  for (const auto& [name, form] : kLayers)
    if (layer.op->name == name) return form;
  return std::nullopt;
}

bool is_view(const Layer& layer, std::span<const Tensor* const> values) {
  if (layer.op->function != Function::kDropout) return layer.op->views;
  if (layer.inputs.size() < 3 || layer.inputs[2] == kNone) return true;
  return values[2] != nullptr && !layer.op->is_random(values);  // training_mode
}

std::optional<std::int64_t> concatenation_axis(const Layer& layer, std::int64_t rank) {
  if (layer.op->function != Function::kConcat) return std::nullopt;
  const std::int64_t axis = layer.attributes.integer("axis", 1);
  return axis < 0 ? axis + rank : axis;
}

std::optional<std::int64_t> gather_axis(const Layer& layer, std::int64_t rank) {
  if (layer.op->function != Function::kGather) return std::nullopt;
  const std::int64_t axis = layer.attributes.integer("axis", 0);
  return axis < 0 ? axis + rank : axis;
}

bool is_where(const Layer& layer) { return layer.op->function == Function::kWhere; }
bool is_nan_test(const Layer& layer) { return layer.op->function == Function::kIsNan; }
bool is_pad(const Layer& layer) { return layer.op->function == Function::kPad; }
bool is_top_k(const Layer& layer) { return layer.op->name == "TopK"; }
bool is_arg_max(const Layer& layer) { return layer.op->name == "ArgMax"; }
bool is_arg_min(const Layer& layer) { return layer.op->name == "ArgMin"; }
bool is_nearest_resize(const Layer& layer) {
  return is_resize(layer) && layer.attributes.text("mode", "nearest") == "nearest";
}

std::optional<std::vector<std::int64_t>> permutation(const Layer& layer, std::int64_t rank) {
  if (layer.op->function != Function::kTranspose) return std::nullopt;
  std::vector<std::int64_t> reversed(static_cast<std::size_t>(rank));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return layer.attributes.ints("perm", reversed);
}

std::optional<Pooling> pooling_of(const Layer& layer, const Shape& input) {
  const bool average = layer.op->function == Function::kAveragePool;
  if (!average && layer.op->function != Function::kMaxPool) return std::nullopt;
  WindowGeometry g = pool_geometry(layer, input);
  if (!average) return Pooling{PoolForm::kMax, std::move(g)};
  if (layer.attributes.integer("count_include_pad", 0) == 0)
    return Pooling{PoolForm::kAverageExcludingPads, std::move(g)};
  for (std::size_t d = 0; d < g.rank(); ++d)
    if ((g.output[d] - 1) * g.strides[d] + (g.kernel[d] - 1) * g.dilations[d] >=
        g.input[d] + g.pads_begin[d] + g.pads_end[d])
      return std::nullopt;
  return Pooling{PoolForm::kAverageIncludingPads, std::move(g)};
}

bool is_spatial_mean(const Layer& layer, std::int64_t rank, int row_dims) {
  return layer.op->function == Function::kGlobalAveragePool ||
         (layer.op->function == Function::kReduceMean && row_dims == 2 && rank == 4);
}

bool is_mask_operand(const Layer& layer, std::size_t input) {
  constexpr std::size_t kMask = 3;
  return input == kMask && layer.op->name == "Attention" && layer.op->domain.empty();
}

std::optional<MatrixForm> matrix_form(const Layer& layer) {
  if (layer.op->function == Function::kMatMul) return MatrixForm{};
  if (layer.op->function != Function::kGemm) return std::nullopt;
  return MatrixForm{layer.attributes.integer("transA", 0) != 0, layer.attributes.integer("transB", 0) != 0,
                    layer.attributes.real("alpha", 1.0f), layer.attributes.real("beta", 1.0f), false};
}

}  // namespace ulpscope::ops
