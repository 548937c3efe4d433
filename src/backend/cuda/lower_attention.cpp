// Attention as one generated kernel.
#include <array>

#include "backend/cuda/attention_source.h"
#include "backend/cuda/products.h"

namespace ulpscope::cuda {
namespace {

/// Strides of (batch, heads, rows, columns) of a tensor of two to four dimensions that broadcasts to these batches.
std::optional<std::array<std::int64_t, 4>> four_strides(const Shape& shape, std::span<const std::int64_t> strides) {
  if (shape.size() < 2 || shape.size() > 4) return std::nullopt;
  std::array<std::int64_t, 4> result{};
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) result[d + 4 - shape.size()] = strides[d];
  return result;
}

/// Scales of the elements that a product multiplies, if it does.
std::optional<AttentionSpec::Elements> elements_of(const ProductKernel& product) {
  if (!product.elements) return std::nullopt;
  return AttentionSpec::Elements{product.operands[0].scale, product.operands[1].scale};
}

}  // namespace

Attentions::Attentions(const KernelLowering& context, const Schedule& schedule, Programs& programs)
    : KernelLowering(context), programs_(programs) {
  for (AttentionKernel& attention : attentions_of(spec_, schedule, uses_)) {
    parts_of_all_.insert(attention.parts.begin(), attention.parts.end());
    attentions_[attention.values] = std::move(attention);
  }
}

const AttentionKernel* Attentions::find(const ProductKernel& values) const {
  const auto found = attentions_.find(&values);
  return found == attentions_.end() ? nullptr : &found->second;
}

/// The sums that --accumulation hopper asks for are those of products by themselves.
bool Attentions::adds_up_as_asked(const ProductKernel& product) {
  return !product.elements || !product.accumulator || product.accumulator->restart == 0;
}

/// The type whose numbers an operand is, before they become elements if they do; kUndefined: it is not on the device.
DataType Attentions::type_before(const Operand& operand) const {
  if (!operand.is_encoded()) return type_of(operand.rounding);
  return memory_.is_on_device(operand.tensor) ? memory_.device_view(operand.plain()).type : DataType::kUndefined;
}

/// What of types, shapes and sizes follows from the descriptions; nothing where the kernel has no form for them.
std::optional<AttentionSpec> Attentions::spec_of(const AttentionKernel& attention) const {
  const Store& out = attention.values->epilogue.outputs[0].store;
  AttentionSpec spec;
  spec.q_factor = attention.q_factor;
  spec.k_factor = attention.k_factor;
  spec.nan_is_zero = attention.nan_is_zero;
  spec.flash = attention.flash;
  spec.score_elements = elements_of(*attention.scores);
  spec.value_elements = elements_of(*attention.values);
  spec.type = type_of(attention.probabilities);
  spec.stored = type_of(out.rounding);
  if (spec.type == DataType::kFloat32 || out.exact) return std::nullopt;
  for (const Operand* operand : {&attention.q, &attention.k, &attention.v})
    if (spec_.is_constant(operand->tensor) || type_before(*operand) != spec.type) return std::nullopt;
  const Shape& domain = attention.softmax->domain;
  if (domain.size() < 2 || domain.size() > 4 || attention.scores->epilogue.domain != domain ||
      num_elements(domain) == 0)
    return std::nullopt;
  Shape four(4 - domain.size(), 1);
  four.insert(four.end(), domain.begin(), domain.end());
  spec.batch = four[0], spec.heads = four[1], spec.queries = four[2], spec.keys = four[3];
  spec.depth = shape(attention.q.tensor).back();
  spec.value_depth = shape(attention.v.tensor).back();
  return spec;
}

/// The part of a program up to `source`, over (batch, heads, queries, keys). `given`: the tensor that is not loaded,
/// but there already; kNone: the result of the product. What else it reads goes behind the other arguments of `step`.
AttentionSpec::Scores Attentions::score_part(ProgramKernel kernel, Register source, TensorId given,
                                             const AttentionSpec& spec, KernelStep& step) {
  kernel.domain = {spec.batch, spec.heads, spec.queries, spec.keys};
  kernel.row_dims = 0;
  ProgramAssembly assembly(kernel.domain, 0);
  const Register sum = assembly.input({-1, DataType::kFloat32, 0, {}}, ops::strides_of(kernel.domain), Rounding::kNone);
  kernel.outputs[0].source = source;
  kernel.outputs.resize(1);
  std::vector<Register> registers(kernel.program.values.size(), -1);
  for (std::size_t r = 0; r < registers.size(); ++r) {
    const Program::Value& value = kernel.program.values[r];
    if (value.kind != Program::Kind::kLoad) continue;
    const Load& load = kernel.loads[value.load];
    if (load.source == Load::Source::kResult || (given != kNone && load.operand.tensor == given)) registers[r] = sum;
  }
  programs_.assemble(kernel, assembly, registers);
  const auto& inputs = assembly.spec().inputs;
  step.reads.insert(step.reads.end(), assembly.reads().begin() + 1, assembly.reads().end());
  return {assembly.spec().program, registers[source], {inputs.begin() + 1, inputs.end()}};
}

/// The programs between the products become two pieces of the kernel: the epilogue of the first product, and what the
/// softmax is taken of; between them lies the rounding that the scores would be stored with. False where the kernel has
/// no form for these types, shapes or sizes: then the parts are lowered by themselves.
bool Attentions::lower(const AttentionKernel& attention) {
  const Operand &q = attention.q, &k = attention.k, &v = attention.v;
  const Store& out = attention.values->epilogue.outputs[0].store;
  for (const ProductKernel* product : {attention.scores, attention.values})
    if (!adds_up_as_asked(*product)) return false;
  auto spec = spec_of(attention);
  if (!spec) return false;
  for (const ProductKernel* product : {attention.scores, attention.values})
    if (product->elements) tell_how_fp8_adds_up(*product, layer(product->layer), false, target_.is_hopper());
  steps_.begin(attention.values->layer);
  const auto numbers = [&](const Operand& operand) {
    return memory_.read_as(operand.is_encoded() ? operand.plain() : operand, spec->type);
  };
  const View q_view = numbers(q), k_view = numbers(k), v_view = numbers(v);
  const auto q_strides = four_strides(shape(q.tensor), q_view.strides);
  const auto v_strides = four_strides(shape(v.tensor), v_view.strides);
  auto k_strides = four_strides(shape(k.tensor), k_view.strides);
  if (!q_strides || !k_strides || !v_strides) return false;
  std::swap((*k_strides)[2], (*k_strides)[3]);  // It is [depth, keys].
  spec->q = *q_strides, spec->k = *k_strides, spec->v = *v_strides;
  spec->alignment = {alignment_of(q_view), alignment_of(k_view), alignment_of(v_view), 16};
  // Heads side by side in memory, as the layers behind them want them.
  const Shape& result = shape(out.tensor);
  std::vector<std::int64_t> strides = ops::strides_of(result);
  if (result.size() == 4) {
    const std::int64_t row = result[1] * result[3];
    strides = {result[2] * row, result[3], row, 1};
  }
  spec->out = *four_strides(result, strides);

  KernelStep step;
  step.reads = {pointer(q_view), pointer(k_view), pointer(v_view)};
  // What the sums become on their way to the softmax: the epilogue of the first product, then the program's beginning.
  ProgramKernel epilogue = attention.scores->epilogue;
  if (epilogue.layers.empty()) epilogue.layers = {attention.scores->layer};
  const auto [scores, store] = epilogue.outputs[0];
  spec->scores[0] = score_part(std::move(epilogue), scores, kNone, *spec, step);
  spec->scores[0].rounding = attention.rounding;
  spec->scores[1] = score_part(*attention.softmax, attention.softmax->softmax_of, store.tensor, *spec, step);
  step.source = shared_attention(*spec, target_.warp_group_processors());
  if (step.source == nullptr) return false;
  step.writes = {pointer(memory_.define(out, strides))};
  steps_.add(std::move(step));
  return true;
}

}  // namespace ulpscope::cuda
