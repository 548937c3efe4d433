// Products that are added up as a tensor core does (formats/accumulator.h).
#include "backend/cpu/lowering.h"
#include "backend/reference_kernel.h"

namespace ulpscope::cpu {

void Lowering::lower_accumulated(const ProductKernel& kernel) {
  if (!kernel.elements) return lower_reference_product(kernel);
  // Sums of elements alone; scales, a factor and what is added come behind them.
  Layer l = layer(kernel.layer);
  l.inputs.resize(2);
  const auto form = ops::matrix_form(l);
  if (form && !form->plain) l.attributes.set("alpha", 1.0f);
  Results results;
  std::vector<int> inputs{read_elements(kernel.operands[0], Layout::kDense, IntegerForm::kFloats, kernel.layer)};
  if (form)
    read_element_matrix(kernel, results, inputs);
  else
    read_element_convolution(kernel, results, inputs);
  results.slot = new_float_slot(kernel.epilogue.domain);
  add_step(make_reference_kernel(std::move(l), DataType::kFloat32, true, kernel.accumulator), std::move(inputs),
           {results.slot}, kernel.layer);
  const Operand c = form ? addend_of(kernel, *form) : Operand{};
  if (c.tensor != kNone || (form && form->alpha != 1.0f)) add_addend(kernel, *form, c, results);
  lower_epilogue(kernel, results);
}

/// The second factor as an input, and what the sums are scaled by.
void Lowering::read_element_matrix(const ProductKernel& kernel, Results& results, std::vector<int>& inputs) {
  results.scaling.last = true;
  MatMulSpec spec;
  read_second(kernel, false, spec, results, inputs);
  if (spec.constant_b) inputs.push_back(constant_slot(spec.constant_b()));
}

void Lowering::read_element_convolution(const ProductKernel& kernel, Results& results, std::vector<int>& inputs) {
  const Operand& w = kernel.operands[1];
  std::string name;
  const ConstantSource source = constants_.convolution_weights(kernel, w.rounding, name);
  const std::string key = element_key(kernel, name);
  const auto weights = constants_.element_weights(layer(kernel.layer), w, weights_.get(name, source), key,
                                                  kernel.normalization != kNone);
  inputs.push_back(constant_slot(weights->elements.in_memory()));
  set_scales(kernel, *weights, key, results.scaling);
  results.scaling.bias = constants_.convolution_bias(kernel, Rounding::kNone, name);
}

}  // namespace ulpscope::cpu
