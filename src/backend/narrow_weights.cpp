#include "backend/narrow_weights.h"

#include <algorithm>

#include "core/parallel.h"
#include "engine/element_forms.h"
#include "formats/coded_elements.h"
#include "formats/rounding.h"
#include "graph/deferred_fold.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

bool is_narrow(Format format) {
  return format == Format::kInt4 || format == Format::kInt8 || format == Format::kFloat8E4M3 ||
         format == Format::kFloat4E2M1;
}

/// As [n, k], of elements that lie so or, unless `turned`, as [k, n].
NarrowWeights::Matrix arranged(const NarrowWeights& made, bool turned, const ScaleLayout& layout,
                               const Tensor& elements, const Tensor& scales, float second) {
  const std::int64_t n = made.n, k = made.k, block = made.block, groups = (k + block - 1) / block;
  NarrowWeights::Matrix result{Tensor(DataType::kFloat32, {n, k}), Tensor(DataType::kFloat32, {n, groups})};
  const float *in = elements.data<float>(), *by = scales.data<float>();
  float *out = result.elements.data<float>(), *own = result.scales.data<float>();
  constexpr std::int64_t kRows = 16;
  parallel_for((n + kRows - 1) / kRows, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kRows, last = std::min(n, end * kRows);
    if (turned)
      std::copy(in + first * k, in + last * k, out + first * k);
    else
      for (std::int64_t at = 0; at < k; ++at)
        for (std::int64_t row = first; row < last; ++row) out[row * k + at] = in[at * n + row];
    for (std::int64_t row = first; row < last; ++row)
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t at = g * block, element = turned ? row * k + at : at * n + row;
        own[row * groups + g] = by[layout.index(element)] * second;
      }
  });
  return result;
}

}  // namespace

std::optional<NarrowWeights> narrow_weights(const Specialization& spec, const PreparedConstants& constants,
                                            const ProductKernel& kernel) {
  const Layer& l = spec.network->layer(kernel.layer);
  const auto form = ops::matrix_form(l);
  const Operand& b = kernel.operands[1];
  if (!form || kernel.elements || !spec.is_constant(b.tensor) || spec.shape(b.tensor)->size() != 2) return {};
  const auto [first, last] = constants.roundings({b.tensor, b.rounding, b.first});
  if (first != Rounding::kNone) return {};
  NarrowWeights result;
  const bool turned = form->transpose_b;
  const Shape& own = *spec.shape(b.tensor);
  result.n = own[turned ? 0 : 1], result.k = own[turned ? 1 : 0];
  if (num_elements(own) == 0) return {};
  const Tensor& value = spec.value(b.tensor);
  if (b.is_encoded()) {
    const ScaleLayout layout = scale_layout(spec, l, 1, *b.encoding);
    const auto block = block_along(layout, result.n, result.k, turned);
    if (!block || !is_narrow(b.encoding->format)) return {};
    result.key = constants.weights_key(kernel);
    result.format = b.encoding->format;
    result.block = *block;
    result.half_scales = b.encoding->granularity == Granularity::kBlock && b.encoding->scale == Format::kFloat16;
    result.make = [result, turned, layout, b, value] {
      ScaleRules rules;
      if (b.channel_weights != nullptr) rules.weights = b.channel_weights->mean_squares;
      const Quantized made = quantize(*b.encoding, layout, value.in_memory(), rules);
      return arranged(result, turned, layout, made.elements, made.scales, made.second);
    };
    return result;
  }
  const auto stored = dequantized_matrix(value, turned);
  if (!stored || !is_narrow(stored->codes.format)) return {};
  result.key = constants.key(b.tensor);
  result.format = stored->codes.format;
  result.block = stored->codes.block;
  result.half_scales = stored->elements->has_half_scales();
  result.make = [result, values = stored->elements, turned = stored->transposed, zero = stored->codes.zero_point] {
    Tensor elements = values->codes().in_memory().cast(DataType::kFloat32);
    if (zero != 0) {
      Tensor moved(DataType::kFloat32, elements.shape());
      std::ranges::transform(elements.values<float>(), moved.data<float>(), [&](float x) { return x - zero; });
      elements = moved;
    }
    return arranged(result, turned, values->layout(), elements, values->scales(), 1.0f);
  };
  return result;
}

}  // namespace ulpscope
