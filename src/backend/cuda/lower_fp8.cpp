// Products of fp8 e4m3: cuBLASLt on fp8 tensor cores where the GPU has them and the sizes suit them. Elsewhere their
// elements as float16, whose products are exact, too, and whose sums are in float32.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/cuda/products.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {

void tell_how_fp8_adds_up(const ProductKernel& kernel, const Layer& layer, bool by_fp8, bool is_hopper) {
  if (by_fp8 && !kernel.accumulator)
    log_once(LogLevel::kInfo,
             "backend 'cuda': products of fp8 are added up as the GPU does, with fast accumulation off; "
             "--accumulation fp32 is to be had on the CPU");
  if (by_fp8 && kernel.accumulator && !is_hopper)
    log_once(LogLevel::kWarning,
             "backend 'cuda': this GPU is no Hopper: products of fp8 are added up as it does, not as --accumulation "
             "says");
  if (!by_fp8 && kernel.accumulator)
    log_once(LogLevel::kWarning,
             fmt::format("backend 'cuda': layer '{}' and others without a product of fp8 on this GPU are added up in "
                         "float32, not as --accumulation says",
                         layer.name));
}

namespace {

/// The product of both operands' elements, results without gaps; nothing where no library takes it.
std::optional<MatrixProductSpec> fp8_product(const KernelLowering& context, const ProductKernel& kernel,
                                             const ops::MatrixForm& form) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const auto s = element_shape(form, context.shape(a.tensor), context.shape(b.tensor));
  if (!a.is_of_e4m3() || !b.is_of_e4m3() || context.spec_.is_constant(a.tensor) || !s || s->k == 0) return std::nullopt;
  if (context.spec_.is_constant(b.tensor) && num_elements(context.shape(b.tensor)) != s->batches() * s->k * s->n)
    return std::nullopt;
  MatrixProductSpec spec = element_product(*s, DataType::kFloat8E4M3, DataType::kFloat32);
  spec.fast = kernel.accumulator && kernel.accumulator->restart == 0;
  constexpr std::int64_t kWord = 16;  // Bytes at whose multiples rows begin.
  if (s->k % kWord == 0 && s->n % (kWord / 2) == 0 && context.target_.has_product(spec)) return spec;
  spec.operands = DataType::kFloat16;
  spec.fast = false;
  return context.target_.has_product(spec) ? std::optional(spec) : std::nullopt;
}

/// The type in which a product reads its first operand as elements, row-major; nothing where it reads it otherwise.
std::optional<DataType> type_of_rows(const KernelLowering& context, const ProductKernel& kernel) {
  const auto form = ops::matrix_form(context.layer(kernel.layer));
  const Operand& a = kernel.operands[0];
  if (!form || form->transpose_a || !kernel.elements || a.exact || a.scales != ScaleSource::kCalibrated) return {};
  if (a.encoding->granularity != Granularity::kTensor) return {};
  const auto s = element_shape(*form, context.shape(a.tensor), context.shape(kernel.operands[1].tensor));
  if (!s || !s->batch.empty()) return {};
  // Sums of any integers of that many products fit into int32.
  constexpr std::int64_t kMostBytes = std::numeric_limits<std::int32_t>::max() / (255 * 255);
  if (kernel.sums_bytes() && (s->k == 0 || s->k > kMostBytes || context.spec_.is_constant(a.tensor))) return {};
  if (kernel.sums_bytes()) return a.quantization().is_unsigned() ? DataType::kUInt8 : DataType::kInt8;
  const auto spec = fp8_product(context, kernel, *form);
  return spec ? std::optional(spec->operands) : std::nullopt;
}

}  // namespace

WantedElements wanted_elements(const KernelLowering& context, const Store& store) {
  WantedElements wanted;
  if (store.exact || store.tensor == kNone) return wanted;
  wanted.alone =
      std::ranges::find(context.spec_.network->outputs, store.tensor) == context.spec_.network->outputs.end();
  for (const KernelDescription* reader : context.uses_[store.tensor].readers) {
    const auto* product = std::get_if<ProductKernel>(reader);
    if (const auto* layer = std::get_if<LayerKernel>(reader); layer != nullptr && layer->operands.size() > 1) {
      const auto form = layer->operands[0].exact ? std::nullopt : quantizer_form(context, *layer);
      wanted.alone &= form.has_value();
      if (form && std::ranges::find(wanted.forms, *form) == wanted.forms.end()) wanted.forms.push_back(*form);
      continue;
    }
    const bool reads = product != nullptr && product->operands[0].tensor == store.tensor;
    const auto type = reads ? type_of_rows(context, *product) : std::nullopt;
    const auto is_it = [&](const Operand& operand) { return operand.tensor == store.tensor; };
    wanted.alone &=
        type && std::ranges::count_if(product->operands, is_it) == 1 &&
        std::ranges::none_of(product->epilogue.loads, [&](const Load& load) { return is_it(load.operand); });
    if (!type) continue;
    const WantedElements::Form form{product->operands[0].quantization(), *type};
    if (std::ranges::find(wanted.forms, form) == wanted.forms.end()) wanted.forms.push_back(form);
  }
  wanted.alone &= !wanted.forms.empty();
  return wanted;
}

bool Products::lower_fp8(const ProductKernel& kernel, const ops::MatrixForm& form) {
  const Operand &a = kernel.operands[0], &b = kernel.operands[1];
  const bool constant = spec_.is_constant(b.tensor);
  const auto found = fp8_product(*this, kernel, form);
  if (!found) return false;
  const MatrixProductSpec& spec = *found;
  const auto s = element_shape(form, shape(a.tensor), shape(b.tensor));
  const bool by_fp8 = spec.operands == DataType::kFloat8E4M3;
  tell_how_fp8_adds_up(kernel, layer(kernel.layer), by_fp8, target_.is_hopper());
  if (by_fp8 && constant && lower_elements_with_others(kernel, spec)) return true;

  const MatrixWeights weights =
      constant ? matrices_.element_weights(kernel, {.n = s->n, .k = s->k, .transpose_b = form.transpose_b})
               : MatrixWeights();
  const ElementViews views = read_both(kernel, form, *s, weights, {spec.operands, spec.operands}, true);
  ProductStep step{.spec = spec};
  step.a = pointer(views.a), step.b = pointer(views.b);
  ProductResults results = results_of(kernel, form);
  const ElementScales scales = scales_of(kernel, weights.scale);
  if (by_fp8 && scales.scale.size() == 1) {
    step.factor = scales.scale.data<float>()[0];
  } else {
    results.scale = scales.scale;
    results.second = scales.second;
  }
  const Shape& domain = kernel.epilogue.domain;
  if (!by_fp8 || !fold_fp8(kernel, step, results)) {
    results.view = steps_.new_view(spec.result, domain, ops::strides_of(domain));
    // The same numbers as cuBLASLt's factor, from a program that may be one kernel with the product.
    if (step.factor != 1 && target_.has_fused_products())
      results.scale = Tensor::of<float>({1}, {std::exchange(step.factor, 1.0f)});
  }
  step.d = pointer(results.view);
  add_with_epilogue(std::move(step), kernel, results, {domain, ops::strides_of(domain)});
  return true;
}

/// Lets bias and relu ride on the product when they, and one store of 16 bits, are all that is left to do: results in
/// float32 take up to twice the time.
bool Products::fold_fp8(const ProductKernel& kernel, ProductStep& step, ProductResults& results) {
  const auto& outputs = kernel.epilogue.outputs;
  if (results.scale || results.alpha != 1.0f || results.beta != 1.0f || outputs.size() != 1) return false;
  const DataType type = type_of(outputs[0].store.rounding);
  if (type != DataType::kFloat16 && type != DataType::kBFloat16) return false;
  const ProductFold fold = epilogues_.fold_of(kernel, step.spec.n, type, results.addend, {});
  if (!fold.whole) return false;
  MatrixProductSpec folded = step.spec;
  folded.result = type;
  folded.bias = fold.bias.tensor != kNone;
  folded.relu = fold.relu;
  if (!adds_bias_before_rounding(folded) || !target_.has_product(folded)) return false;
  step.spec = folded;
  if (folded.bias) step.bias = pointer(memory_.constant_view(fold.bias, type));
  results.addend = {};
  results.done = fold.done;
  results.view = steps_.new_view(type, kernel.epilogue.domain, ops::strides_of(kernel.epilogue.domain));
  memory_.place(outputs[0].store.tensor, results.view, kernel.epilogue.domain);
  return true;
}

}  // namespace ulpscope::cuda
