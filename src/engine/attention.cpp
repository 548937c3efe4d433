#include "engine/attention.h"

#include <algorithm>
#include <utility>

#include "formats/rounding.h"
#include "ops/forms.h"

namespace ulpscope {
namespace {

class AttentionFinder {
 public:
  AttentionFinder(const Specialization& spec, const IdMap<TensorId, KernelUses>& uses)
      : spec_(spec), network_(*spec.network), uses_(uses) {}

  /// Goes back from the product with the values: [Where that puts 0 for NaN,] a program that ends in a softmax, the
  /// product that it reads, factors of that one's operands. Everything on the way must have no other reader, since it
  /// is not stored any more, and no rounding that the kernel could not repeat.
  std::optional<AttentionKernel> attention_of(const ProductKernel& values) const {
    const auto plain_product = [&](const ProductKernel& kernel) {
      const auto form = ops::matrix_form(network_.layer(kernel.layer));
      return form && form->plain && (!kernel.elements || has_calibrated_e4m3(kernel)) &&
             kernel.epilogue.outputs.size() == 1 && kernel.epilogue.outputs[0].store.tensor != kNone;
    };
    if (!plain_product(values)) return std::nullopt;
    AttentionKernel result;
    result.values = &values;
    result.flash = is_over_row_sums(values.epilogue, values.operands[0].tensor);
    if (!result.flash && values.epilogue.outputs[0].source != 0) return std::nullopt;
    result.v = values.operands[1];
    result.probabilities = values.operands[0].rounding;
    // What stores the probabilities rounds them as they are read; elements are made of what is stored.
    const auto rounds_so = [&](Rounding stored) {
      if (values.elements && result.probabilities == Rounding::kNone) result.probabilities = stored;
      return stored == Rounding::kNone || stored == result.probabilities;
    };
    const KernelDescription* producer = sole_producer(values.operands[0].tensor, 1);
    if (producer == nullptr) return std::nullopt;
    if (const auto* where = std::get_if<LayerKernel>(producer)) {
      // Where(IsNaN(p), 0, p): rows without a score.
      const Layer& l = network_.layer(where->layer);
      if (!ops::is_where(l) || where->open || !is_zero(l.inputs[1])) return std::nullopt;
      const KernelDescription* test = sole_producer(l.inputs[0], 1);
      const auto* is_nan = test == nullptr ? nullptr : std::get_if<LayerKernel>(test);
      const KernelDescription* tested = sole_producer(l.inputs[2], 2);
      if (is_nan == nullptr || tested == nullptr || !ops::is_nan_test(network_.layer(is_nan->layer)) ||
          network_.layer(is_nan->layer).inputs[0] != l.inputs[2])
        return std::nullopt;
      if (!rounds_so(where->outputs[0].rounding)) return std::nullopt;
      result.nan_is_zero = true;
      result.parts = {test, producer};
      producer = tested;
    }
    result.softmax = std::get_if<ProgramKernel>(producer);
    if (result.softmax == nullptr || result.softmax->softmax_of < 0 || result.softmax->row_dims != 1)
      return std::nullopt;
    if (!rounds_so(result.softmax->outputs[0].store.rounding)) return std::nullopt;
    result.parts.insert(result.parts.begin(), producer);
    for (const Load& load : result.softmax->loads) {
      const TensorId tensor = load.operand.tensor;
      if (load.source != Load::Source::kTensor || spec_.is_constant(tensor)) continue;
      const KernelDescription* first = sole_producer(tensor, 1);
      const auto* product = first == nullptr ? nullptr : std::get_if<ProductKernel>(first);
      if (product == nullptr || !plain_product(*product) || product->epilogue.outputs[0].store.tensor != tensor)
        continue;
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

  /// Elements of both operands, with one calibrated scale each.
  static bool has_calibrated_e4m3(const ProductKernel& kernel) {
    return std::all_of(kernel.operands.begin(), kernel.operands.begin() + 2, [](const Operand& operand) {
      return operand.is_of_e4m3() && operand.encoding->granularity == Granularity::kTensor &&
             operand.scales == ScaleSource::kCalibrated && !operand.exact;
    });
  }

  /// All that the epilogue does is to divide by what the softmax left of rows of `exponentials`.
  static bool is_over_row_sums(const ProgramKernel& epilogue, TensorId exponentials) {
    const Program::Value& last = epilogue.program.values[epilogue.outputs[0].source];
    if (last.kind != Program::Kind::kResult || last.instruction != Instruction::kDiv || last.a != 0) return false;
    const Program::Value& divisor = epilogue.program.values[last.b];
    return divisor.kind == Program::Kind::kLoad &&
           epilogue.loads[divisor.load].operand == Operand{.tensor = exponentials, .row_sums = true};
  }

  /// Nobody but so many kernels read it, and it is no network output: the kernel that makes it; else null.
  const KernelDescription* sole_producer(TensorId id, std::size_t readers) const {
    if (id == kNone || spec_.output[id] || uses_[id].readers.size() != readers) return nullptr;
    return uses_[id].producer;
  }

  /// The operand is another one times a number, stored in the type that the operand is read in: that one.
  std::optional<std::pair<Operand, float>> multiplied(const Operand& operand) const {
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
        if (const auto number = number_of(load.operand)) factor = number;
      } else if (!load.operand.exact && *spec_.shape(load.operand.tensor) == kernel->domain &&
                 load.operand.rounding == operand.rounding) {
        source = load.operand;
      }
    }
    return source && factor ? std::optional(std::pair(*source, *factor)) : std::nullopt;
  }

  /// A constant of one number, as it is read.
  std::optional<float> number_of(const Operand& constant) const {
    const Tensor& value = spec_.value(constant.tensor);
    if (value.size() != 1 || value.type() != DataType::kFloat32) return std::nullopt;
    return round_value(round_value(value.data<float>()[0], constant.first), constant.rounding);
  }

  bool is_zero(TensorId id) const { return id != kNone && spec_.is_constant(id) && number_of({.tensor = id}) == 0.0f; }

 private:
  const Specialization& spec_;
  const Network& network_;
  const IdMap<TensorId, KernelUses>& uses_;
};

}  // namespace

bool multiplies_exponentials(const Specialization& spec, const Assignment& assignment, LayerId product) {
  const Network& network = *spec.network;
  const Layer& values = network.layer(product);
  if (assignment.attention != AttentionRule::kFlash || values.op->function != Function::kMatMul ||
      rounding_of(assignment.precision[product]) == Rounding::kNone)
    return false;
  const TensorId read = values.inputs[0], v = values.inputs[1];
  const LayerId producer = network.tensor(read).producer;
  if (producer == kNone || v == read || !spec.shape(v) || spec.shape(v)->size() < 2) return false;
  const Layer& softmax = network.layer(producer);
  return softmax.op->function == Function::kSoftmax && row_dimensions(spec, softmax) == 1 &&
         spec.shape(read)->back() > 0;
}

std::vector<AttentionKernel> attentions_of(const Specialization& spec, const Schedule& schedule,
                                           const IdMap<TensorId, KernelUses>& uses) {
  std::vector<AttentionKernel> result;
  const AttentionFinder finder(spec, uses);
  for (const std::vector<KernelDescription>& kernels : schedule.kernels)
    for (const KernelDescription& kernel : kernels)
      if (const auto* values = std::get_if<ProductKernel>(&kernel))
        if (auto found = finder.attention_of(*values)) result.push_back(std::move(*found));
  return result;
}

}  // namespace ulpscope
