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
bool is_nearest_resize(const Layer& layer) {
  return is_resize(layer) && layer.attributes.text("mode", "nearest") == "nearest";
}

std::optional<std::vector<std::int64_t>> permutation(const Layer& layer, std::int64_t rank) {
  if (layer.op->function != Function::kTranspose) return std::nullopt;
  std::vector<std::int64_t> reversed(static_cast<std::size_t>(rank));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return layer.attributes.integers("perm", reversed);
}

std::optional<PoolForm> pool_form(const Layer& layer) {
  if (layer.op->function == Function::kMaxPool) return PoolForm::kMax;
  if (layer.op->function != Function::kAveragePool || layer.attributes.integer("ceil_mode", 0) != 0)
    return std::nullopt;
  return layer.attributes.integer("count_include_pad", 0) != 0 ? PoolForm::kAverageIncludingPads
                                                               : PoolForm::kAverageExcludingPads;
}

bool is_spatial_mean(const Layer& layer, std::int64_t rank, int row_dims) {
  return layer.op->function == Function::kGlobalAveragePool ||
         (layer.op->function == Function::kReduceMean && row_dims == 2 && rank == 4);
}

namespace {

/// A requested scale that is not the ratio of the sizes picks other elements.
bool are_ratios(const Tensor& scales, const Shape& input, const Shape& output) {
  if (scales.type() != DataType::kFloat32 || scales.size() == 0) return scales.size() == 0;
  if (scales.size() != 4) return false;
  for (std::size_t d = 0; d < 4; ++d)
    if (scales.data<float>()[d] * static_cast<float>(input[d]) != static_cast<float>(output[d])) return false;
  return true;
}

}  // namespace

bool repeats_whole_elements(const Layer& layer, const Shape& input, const Shape& output, const Tensor* scales) {
  if (!is_resize(layer) || layer.attributes.text("mode", "nearest") != "nearest" || input.size() != 4) return false;
  if (input[0] != output[0] || input[1] != output[1] || input[2] == 0 || input[3] == 0 || output[2] % input[2] != 0 ||
      output[3] % input[3] != 0)
    return false;
  if (layer.op->function != Function::kResize || layer.opset < 11) return true;
  // For whole factors, all of these pick the same source element.
  const std::string transform = layer.attributes.text("coordinate_transformation_mode", "half_pixel");
  const std::string rounding = layer.attributes.text("nearest_mode", "round_prefer_floor");
  const bool floor = transform == "asymmetric" && rounding == "floor";
  const bool half =
      (transform == "half_pixel" || transform == "pytorch_half_pixel" || transform == "half_pixel_symmetric") &&
      (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
  if (!floor && !half) return false;
  if (transform == "pytorch_half_pixel" && (output[2] == 1 || output[3] == 1)) return false;
  if (!layer.attributes.text("keep_aspect_ratio_policy", "stretch").starts_with("stretch")) return false;
  const bool given = layer.inputs.size() > 2 && layer.inputs[2] != kNone;
  return !given || (scales != nullptr && are_ratios(*scales, input, output));
}

std::optional<MatrixForm> matrix_form(const Layer& layer) {
  if (layer.op->function == Function::kMatMul) return MatrixForm{};
  if (layer.op->function != Function::kGemm) return std::nullopt;
  return MatrixForm{layer.attributes.integer("transA", 0) != 0, layer.attributes.integer("transB", 0) != 0,
                    layer.attributes.real("alpha", 1.0f), layer.attributes.real("beta", 1.0f), false};
}

}  // namespace ulpscope::ops
