// What follows the sums of products: what of it may ride on them, and a program for the rest.

#include <algorithm>

#include "backend/cuda/products.h"

namespace ulpscope::cuda {

/// How far bias, residual and relu, in this order, are the beginning of the epilogue.
ProductFold Epilogues::fold_of(const ProductKernel& kernel, std::int64_t n, DataType type,
                               const Operand& addend_of_form, const std::vector<std::int64_t>& order) const {
  const ProgramKernel& epilogue = kernel.epilogue;
  ProductFold fold;
  // What a product of elements adds is not rounded when it is read.
  const auto holds = [&](const Operand& candidate) {
    if (type_of(candidate.rounding) == type || !kernel.elements) return type_of(candidate.rounding) == type;
    return std::ranges::all_of(constants_.get(candidate).values<float>(),
                               [&](float x) { return round_value(x, rounding_of(type)) == x; });
  };
  const auto as_bias = [&](const Operand& candidate) {
    if (candidate.tensor == kNone || !spec_.is_constant(candidate.tensor) || candidate.is_encoded()) return false;
    const Tensor& value = spec_.value(candidate.tensor);
    return value.size() == n && n > 1 && value.shape().back() == n && value.type() == DataType::kFloat32 &&
           holds(candidate);
  };
  if (addend_of_form.tensor != kNone) {
    if (!as_bias(addend_of_form)) return fold;
    fold.bias = addend_of_form;
  }
  Register user = -1;
  while (const Program::Value* next = fold.relu ? nullptr : only_use(epilogue, fold.done, &user)) {
    const Load* load = addend(epilogue, *next, fold.done);
    if (next->instruction == Instruction::kRelu) {
      fold.relu = true;
    } else if (load != nullptr && !load->per_channel && fold.bias.tensor == kNone && fold.residual.tensor == kNone &&
               as_bias(load->operand)) {
      fold.bias = load->operand;
    } else if (load != nullptr && !load->per_channel && fold.residual.tensor == kNone &&
               is_residual(load->operand, epilogue.domain, type, order)) {
      fold.residual = load->operand;
    } else {
      break;
    }
    fold.done = user;
  }
  if (epilogue.outputs.size() != 1) return fold;
  const auto& [source, store] = epilogue.outputs[0];
  fold.whole = source == fold.done && !store.exact && store.tensor != kNone && type_of(store.rounding) == type;
  return fold;
}

/// A tensor that lies as the results will, in their type.
bool Epilogues::is_residual(const Operand& operand, const Shape& domain, DataType type,
                            const std::vector<std::int64_t>& order) const {
  if (order.empty()) return false;
  if (spec_.is_constant(operand.tensor) || operand.is_encoded() || shape(operand.tensor) != domain) return false;
  const View view = memory_.device_view(operand);
  return view.type == type && is_exact(type, operand.rounding) && same_places(domain, view.strides, order);
}

Register Epilogues::append_scaling(const ProductResults& results, ProgramAssembly& assembly, Register value) {
  Program& program = assembly.program();
  const Shape& domain = assembly.domain();
  const auto operand = [&](const Tensor& tensor) {
    if (tensor.size() == 1) return program.constant(tensor.data<float>()[0]);
    std::vector<std::int64_t> strides(domain.size(), 0);
    strides[results.channel] = 1;
    return assembly.input(memory_.constant_view(tensor, DataType::kFloat32), strides, Rounding::kNone);
  };
  if (results.scale) value = program.apply(Instruction::kMul, value, operand(results.scale));
  if (results.second != 1.0f) value = program.apply(Instruction::kMul, value, program.constant(results.second));
  if (results.bias) value = program.apply(Instruction::kAdd, value, operand(results.bias));
  if (results.alpha != 1.0f) value = program.apply(Instruction::kMul, value, program.constant(results.alpha));
  if (results.addend.tensor == kNone) return value;
  ProgramKernel host;
  host.layers = {steps_.layer()};
  host.domain = domain;
  Register added = programs_.load(host, {Load::Source::kTensor, results.addend}, assembly);
  if (results.beta != 1.0f) added = program.apply(Instruction::kMul, added, program.constant(results.beta));
  return program.apply(Instruction::kAdd, value, added);
}

void Epilogues::assemble(const ProductKernel& kernel, const ProductResults& results, Register raw,
                         const std::vector<std::int64_t>& order, ProgramAssembly& assembly) {
  ProgramKernel rest = kernel.epilogue;
  if (rest.layers.empty()) rest.layers = {kernel.layer};
  std::vector<Register> registers(rest.program.values.size(), -1);
  registers[results.done] = append_scaling(results, assembly, raw);
  programs_.assemble(rest, assembly, registers);
  // A register that is a load itself is stored through a copy.
  for (const auto& output : rest.outputs)
    if (registers[output.source] == raw) registers[output.source] = assembly.program().apply(Instruction::kCopy, raw);
  programs_.store_outputs(rest, assembly, registers, order);
}

void Epilogues::lower(const ProductKernel& kernel, const ProductResults& results) {
  if (auto program = program_of(kernel, results)) steps_.add(std::move(*program).finish());
}

std::optional<ProgramAssembly> Epilogues::program_of(const ProductKernel& kernel, const ProductResults& results) {
  const ProgramKernel& epilogue = kernel.epilogue;
  if (epilogue.outputs.empty()) return std::nullopt;
  if (epilogue.outputs.size() == 1 && epilogue.outputs[0].source == results.done) {
    const Store& store = epilogue.outputs[0].store;
    if (memory_.buffer_of(store.tensor) == results.view.buffer) return std::nullopt;  // Stored by the product itself.
    const bool plain = !results.scale && !results.bias && results.alpha == 1.0f && results.addend.tensor == kNone;
    if (plain && results.view.type == DataType::kFloat32 && memory_.alias(store, results.view)) return std::nullopt;
  }
  ProgramAssembly assembly(epilogue.domain, 0);
  const Register raw = assembly.input(results.view, results.view.strides, Rounding::kNone);
  assemble(kernel, results, raw, results.view.strides, assembly);
  return assembly;
}

}  // namespace ulpscope::cuda
