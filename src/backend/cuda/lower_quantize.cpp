// QuantizeLinear and DequantizeLinear between what is computed and the products that read elements: what computes a
// tensor leaves its elements, and products read these. Others read them times their scale.
#include <algorithm>

#include "backend/cuda/layers.h"
#include "engine/int8.h"
#include "ops/forms.h"

namespace ulpscope::cuda {

std::optional<WantedElements::Form> quantizer_form(const KernelLowering& context, const LayerKernel& kernel) {
  const Specialization& spec = context.spec_;
  const Layer& l = context.layer(kernel.layer);
  if (!ops::is_quantize(l) || kernel.open || kernel.operands[0].is_encoded() ||
      kernel.operands[0].rounding != Rounding::kNone || spec.is_constant(l.inputs[0]) ||
      !spec.is_held_as_float(l.inputs[0]) || !spec.shape(l.inputs[0]) || !spec.is_constant(l.inputs[1]))
    return std::nullopt;
  const DataType type = spec.type(l.outputs[0]);
  const Tensor& scale = spec.value(l.inputs[1]);
  const bool bytes = type == DataType::kInt8 || type == DataType::kUInt8;
  if ((!bytes && type != DataType::kFloat8E4M3) || scale.size() != 1 || scale.type() != DataType::kFloat32 ||
      !(scale.data<float>()[0] > 0) || !is_symmetric(spec, l) || l.attributes.integer("saturate", 1) == 0 ||
      l.attributes.integer("precision", 0) != 0)
    return std::nullopt;
  // Others want them as the numbers that they are.
  const auto& readers = spec.consumers[l.outputs[0]];
  const auto dequantizes = [&](LayerId reader) {
    return ops::is_dequantize(context.layer(reader)) && dequantized(spec, context.layer(reader).outputs[0]);
  };
  if (spec.output[l.outputs[0]] || readers.empty() || !std::ranges::all_of(readers, dequantizes)) return std::nullopt;
  return WantedElements::Form{{scale.data<float>()[0], format_of(type)->id}, type};
}

bool Layers::lower_quantize(const LayerKernel& kernel) {
  const auto form = quantizer_form(*this, kernel);
  if (!form) return false;
  const Layer& l = layer(kernel.layer);
  Operand operand = kernel.operands[0].plain();
  operand.encoding = Encoding{.format = form->quantization.elements, .granularity = Granularity::kTensor};
  operand.scales = ScaleSource::kCalibrated;
  operand.scale = form->quantization.scale;
  const Shape& dims = shape(l.inputs[0]);
  memory_.place(l.outputs[0], matrices_.read_elements(operand, form->type, dims, ops::strides_of(dims)), dims);
  return true;
}

bool Layers::lower_dequantize(const LayerKernel& kernel) {
  const Layer& l = layer(kernel.layer);
  const Store& store = kernel.outputs[0];
  if (!ops::is_dequantize(l) || spec_.is_constant(l.inputs[0]) || store.exact || store.tensor == kNone ||
      !memory_.is_on_device(l.inputs[0]))
    return false;
  const auto own = dequantized(spec_, l.outputs[0]);
  const View from = memory_.device_view({l.inputs[0]});
  const bool bytes = from.type == DataType::kInt8 || from.type == DataType::kUInt8;
  if (!own || (!bytes && from.type != DataType::kFloat8E4M3)) return false;
  const Shape& dims = shape(l.inputs[0]);
  const std::vector<std::int64_t> dense = ops::strides_of(dims);
  if (!same_places(dims, from.strides, dense)) return false;
  const WantedElements wanted = wanted_elements(*this, store);
  bool numbers = !wanted.alone;
  for (const auto& [quantization, type] : wanted.forms) {
    if (quantization != *own) {
      numbers = true;
      continue;
    }
    View elements = from;
    if (type != from.type) {
      elements = steps_.new_view(type, dims, dense);
      ProgramAssembly assembly(dims, 0);
      const Register x = assembly.input(from, dense, Rounding::kNone);
      assembly.output(assembly.program().apply(Instruction::kCopy, x), elements, dense, Rounding::kNone);
      steps_.add(std::move(assembly).finish());
    }
    memory_.elements()[{store.tensor, false, quantization.scale, quantization.elements, type, dims, dense}] = elements;
  }
  if (!numbers) return true;
  ProgramAssembly assembly(dims, 0);
  const Register x = assembly.input(from, dense, Rounding::kNone);
  const Register value = assembly.program().apply(Instruction::kMul, x, assembly.program().constant(own->scale));
  assembly.output(value, memory_.define(store, dense), dense, store.rounding);
  steps_.add(std::move(assembly).finish());
  return true;
}

}  // namespace ulpscope::cuda
