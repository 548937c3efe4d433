// Attention: a group of two products with a softmax between them, as one generated kernel.
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

bool Lowering::lower_attention(std::span<const KernelDescription> kernels) {
  if (kernels.size() != 3) return false;
  const auto* scores = std::get_if<ProductKernel>(&kernels[0]);
  const auto* softmax = std::get_if<ProgramKernel>(&kernels[1]);
  const auto* values = std::get_if<ProductKernel>(&kernels[2]);
  if (scores == nullptr || softmax == nullptr || values == nullptr || scores->integers || values->integers)
    return false;
  const auto first = ops::matrix_form(layer(scores->layer)), second = ops::matrix_form(layer(values->layer));
  if (!first || !first->plain || !second || !second->plain) return false;
  const auto x = softmax_operand(*softmax);
  if (!x || scores->epilogue.outputs.size() != 1 || values->epilogue.outputs.size() != 1) return false;
  const auto& [score_source, score_store] = scores->epilogue.outputs[0];
  const auto& [out_source, out_store] = values->epilogue.outputs[0];
  const TensorId probabilities = softmax->outputs[0].store.tensor;
  if (values->operands[0].tensor != probabilities || out_source != 0 || out_store.exact || out_store.tensor == kNone)
    return false;
  if (score_store.rounding != Rounding::kNone || softmax->outputs[0].store.rounding != Rounding::kNone) return false;
  const Operand &q = scores->operands[0], &k = scores->operands[1], &v = values->operands[1];
  AttentionSpec spec;
  spec.type = type_of(q.rounding);
  if (spec.type == DataType::kFloat32 || type_of(values->operands[0].rounding) != spec.type) return false;
  for (const Operand* operand : {&q, &k, &v})
    if (spec_.is_constant(operand->tensor) || type_of(operand->rounding) != spec.type) return false;
  const Shape& domain = softmax->domain;
  if (domain.size() < 2 || domain.size() > 4 || scores->epilogue.domain != domain || num_elements(domain) == 0)
    return false;
  Shape four(4 - domain.size(), 1);
  four.insert(four.end(), domain.begin(), domain.end());
  const Shape &q_shape = shape(q.tensor), &v_shape = shape(v.tensor);
  spec.batch = four[0], spec.heads = four[1], spec.queries = four[2], spec.keys = four[3];
  spec.depth = q_shape.back();
  spec.value_depth = v_shape.back();
  spec.stored = type_of(out_store.rounding);
  current_ = values->layer;
  const View q_view = read_as(q, spec.type), k_view = read_as(k, spec.type), v_view = read_as(v, spec.type);
  const auto q_strides = four_strides(q_shape, q_view.strides), v_strides = four_strides(v_shape, v_view.strides);
  auto k_strides = four_strides(shape(k.tensor), k_view.strides);
  if (!q_strides || !k_strides || !v_strides) return false;
  std::swap((*k_strides)[2], (*k_strides)[3]);  // It is [depth, keys].
  spec.q = *q_strides, spec.k = *k_strides, spec.v = *v_strides;

  // What the sums become on their way to the softmax: the epilogue of the first product, then the program's beginning.
  ProgramAssembly assembly(four, 0);
  ProgramKernel before = scores->epilogue, after = *softmax;
  before.domain = after.domain = four;
  after.row_dims = 0;
  after.outputs[0].source = *x;
  const View sum{-1, DataType::kFloat32, 0, dense_strides(four)};
  std::vector<Register> first_registers(before.program.values.size(), -1), registers(after.program.values.size(), -1);
  first_registers[0] = assembly.input(sum, sum.strides, Rounding::kNone);
  if (before.layers.empty()) before.layers = {scores->layer};
  assemble(before, assembly, first_registers);
  for (std::size_t r = 0; r < after.program.values.size(); ++r) {
    const Program::Value& value = after.program.values[r];
    if (value.kind == Program::Kind::kLoad && after.loads[value.load].operand.tensor == score_store.tensor)
      registers[r] = first_registers[score_source];
  }
  assemble(after, assembly, registers);
  spec.score = registers[*x];
  spec.program = assembly.spec().program;
  spec.loads.assign(assembly.spec().inputs.begin() + 1, assembly.spec().inputs.end());

  // Heads side by side in memory, as the layers behind them want them.
  const Shape& result = shape(out_store.tensor);
  std::vector<std::int64_t> strides = dense_strides(result);
  if (result.size() == 4) {
    const std::int64_t row = result[1] * result[3];
    strides = {result[2] * row, result[3], row, 1};
  }
  spec.out = *four_strides(result, strides);
  spec.alignment = {alignment_of(q_view), alignment_of(k_view), alignment_of(v_view), 16};
  const auto source = attention_source(spec);
  if (!source) return false;
  const View out = define(out_store, strides);
  KernelStep step{*source, {pointer(q_view), pointer(k_view), pointer(v_view)}, {pointer(out)}};
  step.reads.insert(step.reads.end(), assembly.reads().begin() + 1, assembly.reads().end());
  add(std::move(step));
  return true;
}

}  // namespace ulpscope::cuda
