// Attention: two products with a softmax between them as one generated kernel, whether they are one group (nothing is
// rounded between them) or several (what would have been stored is rounded all the same).
#include <algorithm>

#include "backend/cuda/attention_source.h"
#include "backend/cuda/lowering.h"

namespace ulpscope::cuda {
namespace {

/// The register that the softmax at the end of a program is taken of: exp(x - max) * reciprocal(sum(exp(x - max))), and
/// nothing behind it.
std::optional<Register> softmax_operand(const ProgramKernel& kernel) {
  if (kernel.outputs.size() != 1 || kernel.row_dims != 1) return std::nullopt;
  const auto& values = kernel.program.values;
  const auto is = [&](Register r, Instruction instruction) {
    return r >= 0 && values[r].kind == Program::Kind::kResult && values[r].instruction == instruction;
  };
  const Register result = kernel.outputs[0].source;
  if (!is(result, Instruction::kMul)) return std::nullopt;
  const Register exponential = values[result].a, inverse = values[result].b;
  if (!is(exponential, Instruction::kExp) || !is(inverse, Instruction::kReciprocal)) return std::nullopt;
  const Register sum = values[inverse].a, shifted = values[exponential].a;
  if (!is(sum, Instruction::kReduceSum) || values[sum].a != exponential || !is(shifted, Instruction::kSub))
    return std::nullopt;
  const Register x = values[shifted].a, largest = values[shifted].b;
  if (!is(largest, Instruction::kReduceMax) || values[largest].a != x) return std::nullopt;
  for (Register r = 0; r < static_cast<Register>(values.size()); ++r)
    if (r != sum && r != largest && values[r].kind == Program::Kind::kResult &&
        is_row_instruction(values[r].instruction))
      return std::nullopt;
  return x;
}

/// Strides of (batch, heads, rows, columns) of a tensor of two to four dimensions that broadcasts to these batches.
std::optional<std::array<std::int64_t, 4>> four_strides(const Shape& shape, std::span<const std::int64_t> strides) {
  if (shape.size() < 2 || shape.size() > 4) return std::nullopt;
  std::array<std::int64_t, 4> result{};
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) result[d + 4 - shape.size()] = strides[d];
  return result;
}

}  // namespace

/// Every pair of products with a softmax between them: its kernels but the last wait for that one.
void Lowering::find_attentions() {
  for (const std::vector<KernelDescription>& kernels : schedule_.kernels)
    for (const KernelDescription& description : kernels)
      if (const auto* values = std::get_if<ProductKernel>(&description))
        if (auto found = attention_of(*values)) {
          for (const KernelDescription* part : found->parts) deferred_.insert(part);
          attentions_[values] = std::move(*found);
        }
}

/// Goes back from the product with the values: [Where that puts 0 for NaN,] a program that ends in a softmax, the
/// product that it reads, factors of that one's operands. Everything on the way must have no other reader, since it is
/// not stored any more, and no rounding that the kernel could not repeat.
std::optional<Lowering::Attention> Lowering::attention_of(const ProductKernel& values) const {
  const auto plain_product = [&](const ProductKernel& kernel) {
    const auto form = ops::matrix_form(layer(kernel.layer));
    return form && form->plain && !kernel.elements && kernel.epilogue.outputs.size() == 1 &&
           kernel.epilogue.outputs[0].store.tensor != kNone;
  };
  if (!plain_product(values) || values.epilogue.outputs[0].source != 0) return std::nullopt;
  Attention result;
  const KernelDescription* producer = sole_producer(values.operands[0].tensor, 1);
  if (producer == nullptr) return std::nullopt;
  if (const auto* where = std::get_if<LayerKernel>(producer)) {
    // Where(IsNaN(p), 0, p): rows without a score.
    const Layer& l = layer(where->layer);
    if (!ops::is_where(l) || where->open || !is_zero(l.inputs[1])) return std::nullopt;
    const KernelDescription* test = sole_producer(l.inputs[0], 1);
    const auto* is_nan = test == nullptr ? nullptr : std::get_if<LayerKernel>(test);
    const KernelDescription* tested = sole_producer(l.inputs[2], 2);
    if (is_nan == nullptr || tested == nullptr || !ops::is_nan_test(layer(is_nan->layer)) ||
        layer(is_nan->layer).inputs[0] != l.inputs[2])
      return std::nullopt;
    if (where->outputs[0].rounding != Rounding::kNone && where->outputs[0].rounding != values.operands[0].rounding)
      return std::nullopt;
    result.nan_is_zero = true;
    result.parts = {test, producer};
    producer = tested;
  }
  result.softmax = std::get_if<ProgramKernel>(producer);
  if (result.softmax == nullptr) return std::nullopt;
  const auto x = softmax_operand(*result.softmax);
  const Rounding stored = result.softmax->outputs.empty() ? Rounding::kNone : result.softmax->outputs[0].store.rounding;
  if (!x || (stored != Rounding::kNone && stored != values.operands[0].rounding)) return std::nullopt;
  result.score = *x;
  result.parts.insert(result.parts.begin(), producer);
  for (const Load& load : result.softmax->loads) {
    const TensorId tensor = load.operand.tensor;
    if (load.source != Load::Source::kTensor || spec_.is_constant(tensor)) continue;
    const KernelDescription* first = sole_producer(tensor, 1);
    const auto* product = first == nullptr ? nullptr : std::get_if<ProductKernel>(first);
    if (product == nullptr || !plain_product(*product) || product->epilogue.outputs[0].store.tensor != tensor) continue;
    const Store& store = product->epilogue.outputs[0].store;
    const Rounding read = load.operand.exact ? Rounding::kNone : load.operand.rounding;
    const Rounding kept = load.operand.exact ? Rounding::kNone : store.rounding;
    if (read != Rounding::kNone && kept != Rounding::kNone && read != kept) continue;
    result.rounding = kept != Rounding::kNone ? kept : read;
    result.scores = product;
    result.parts.insert(result.parts.begin(), first);
    break;
  }
  if (result.scores == nullptr) return std::nullopt;
  result.q = result.scores->operands[0];
  result.k = result.scores->operands[1];
  for (auto [operand, factor] : {std::pair(&result.q, &result.q_factor), std::pair(&result.k, &result.k_factor)})
    if (const auto found = multiplied(*operand)) {
      result.parts.insert(result.parts.begin(), sole_producer(operand->tensor, 1));
      *operand = found->first;
      *factor = found->second;
    }
  return result;
}

const KernelDescription* Lowering::sole_producer(TensorId id, std::size_t readers) const {
  if (id == kNone || spec_.output[id] || uses_[id].readers.size() != readers) return nullptr;
  return uses_[id].producer;
}

std::optional<std::pair<Operand, float>> Lowering::multiplied(const Operand& operand) const {
  const KernelDescription* producer = sole_producer(operand.tensor, 1);
  const auto* kernel = producer == nullptr ? nullptr : std::get_if<ProgramKernel>(producer);
  if (kernel == nullptr || kernel->outputs.size() != 1 || kernel->outputs[0].store.exact) return std::nullopt;
  if (kernel->outputs[0].store.rounding != operand.rounding) return std::nullopt;
  const auto& values = kernel->program.values;
  const Program::Value& product = values[kernel->outputs[0].source];
  if (product.kind != Program::Kind::kResult || product.instruction != Instruction::kMul) return std::nullopt;
  std::optional<Operand> source;
  std::optional<float> factor;
  for (Register r : {product.a, product.b}) {
    const Program::Value& value = values[r];
    if (value.kind == Program::Kind::kConstant) factor = value.constant;
    if (value.kind != Program::Kind::kLoad) continue;
    const Load& load = kernel->loads[value.load];
    if (load.source != Load::Source::kTensor || load.per_channel || load.operand.is_encoded()) continue;
    if (spec_.is_constant(load.operand.tensor)) {
      const Tensor known = constants_.get(load.operand);
      if (known.size() == 1 && known.type() == DataType::kFloat32) factor = known.data<float>()[0];
    } else if (!load.operand.exact && shape(load.operand.tensor) == kernel->domain &&
               load.operand.rounding == operand.rounding) {
      source = load.operand;
    }
  }
  return source && factor ? std::optional(std::pair(*source, *factor)) : std::nullopt;
}

bool Lowering::is_zero(TensorId id) const {
  if (id == kNone || !spec_.is_constant(id)) return false;
  const Tensor& value = spec_.value(id);
  return value.size() == 1 && value.type() == DataType::kFloat32 && value.data<float>()[0] == 0.0f;
}

void Lowering::lower_parts(const Attention& attention) {
  for (const KernelDescription* part : attention.parts) {
    deferred_.erase(part);
    lower(*part);
  }
}

/// The programs between the products become two pieces of the kernel: the epilogue of the first product, and what the
/// softmax is taken of; between them lies the rounding that the scores would be stored with. False where the kernel has
/// no form for these types, shapes or sizes: then the parts are lowered by themselves.
bool Lowering::lower_attention(const Attention& attention, const ProductKernel& values) {
  const ProductKernel& scores = *attention.scores;
  const ProgramKernel& softmax = *attention.softmax;
  const Store &score_store = scores.epilogue.outputs[0].store, &out_store = values.epilogue.outputs[0].store;
  const Operand &q = attention.q, &k = attention.k, &v = values.operands[1];
  AttentionSpec spec;
  spec.q_factor = attention.q_factor;
  spec.k_factor = attention.k_factor;
  spec.nan_is_zero = attention.nan_is_zero;
  spec.type = type_of(q.rounding);
  if (spec.type == DataType::kFloat32 || type_of(values.operands[0].rounding) != spec.type || out_store.exact)
    return false;
  for (const Operand* operand : {&q, &k, &v})
    if (spec_.is_constant(operand->tensor) || type_of(operand->rounding) != spec.type) return false;
  const Shape& domain = softmax.domain;
  if (domain.size() < 2 || domain.size() > 4 || scores.epilogue.domain != domain || num_elements(domain) == 0)
    return false;
  Shape four(4 - domain.size(), 1);
  four.insert(four.end(), domain.begin(), domain.end());
  const Shape &q_shape = shape(q.tensor), &v_shape = shape(v.tensor);
  spec.batch = four[0], spec.heads = four[1], spec.queries = four[2], spec.keys = four[3];
  spec.depth = q_shape.back();
  spec.value_depth = v_shape.back();
  spec.stored = type_of(out_store.rounding);
  current_ = values.layer;
  const View q_view = read_as(q, spec.type), k_view = read_as(k, spec.type), v_view = read_as(v, spec.type);
  const auto q_strides = four_strides(q_shape, q_view.strides), v_strides = four_strides(v_shape, v_view.strides);
  auto k_strides = four_strides(shape(k.tensor), k_view.strides);
  if (!q_strides || !k_strides || !v_strides) return false;
  std::swap((*k_strides)[2], (*k_strides)[3]);  // It is [depth, keys].
  spec.q = *q_strides, spec.k = *k_strides, spec.v = *v_strides;
  spec.alignment = {alignment_of(q_view), alignment_of(k_view), alignment_of(v_view), 16};
  // Heads side by side in memory, as the layers behind them want them.
  const Shape& result = shape(out_store.tensor);
  std::vector<std::int64_t> strides = ops::strides_of(result);
  if (result.size() == 4) {
    const std::int64_t row = result[1] * result[3];
    strides = {result[2] * row, result[3], row, 1};
  }
  spec.out = *four_strides(result, strides);

  KernelStep step;
  step.reads = {pointer(q_view), pointer(k_view), pointer(v_view)};
  // What the sums become on their way to the softmax: the epilogue of the first product, then the program's beginning.
  const auto add_scores = [&](AttentionSpec::Scores& part, ProgramKernel kernel, Register source, TensorId given,
                              Rounding rounding) {
    kernel.domain = four;
    kernel.row_dims = 0;
    if (kernel.layers.empty()) kernel.layers = {scores.layer};
    ProgramAssembly assembly(four, 0);
    const Register sum = assembly.input({-1, DataType::kFloat32, 0, {}}, ops::strides_of(four), Rounding::kNone);
    kernel.outputs[0].source = source;
    kernel.outputs.resize(1);
    std::vector<Register> registers(kernel.program.values.size(), -1);
    for (std::size_t r = 0; r < registers.size(); ++r) {
      const Program::Value& value = kernel.program.values[r];
      if (value.kind != Program::Kind::kLoad) continue;
      const Load& load = kernel.loads[value.load];
      if (load.source == Load::Source::kResult || (given != kNone && load.operand.tensor == given)) registers[r] = sum;
    }
    assemble(kernel, assembly, registers);
    part.program = assembly.spec().program;
    part.result = registers[source];
    part.loads.assign(assembly.spec().inputs.begin() + 1, assembly.spec().inputs.end());
    part.rounding = rounding;
    step.reads.insert(step.reads.end(), assembly.reads().begin() + 1, assembly.reads().end());
  };
  add_scores(spec.scores[0], scores.epilogue, scores.epilogue.outputs[0].source, kNone, attention.rounding);
  add_scores(spec.scores[1], softmax, attention.score, score_store.tensor, Rounding::kNone);
  step.source = shared_attention(spec);
  if (step.source == nullptr) return false;
  step.writes = {pointer(define(out_store, strides))};
  add(std::move(step));
  return true;
}

}  // namespace ulpscope::cuda
