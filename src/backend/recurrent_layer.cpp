#include "backend/recurrent_layer.h"


namespace ulpscope {

std::optional<ops::RecurrentForm> recurrent_layer(const Specialization& spec, const LayerKernel& kernel) {
  using Input = RecurrentInput;
  const Layer& l = spec.network->layer(kernel.layer);
  if (kernel.open || !ops::is_recurrent(l)) return std::nullopt;
  for (const std::size_t i : {Input::kW, Input::kR, Input::kB, Input::kPeephole})
    if (const TensorId id = l.input(i); id != kNone && (!spec.is_constant(id) || kernel.operands[i].is_encoded()))
      return std::nullopt;
  const auto shape = [&](std::size_t i) -> const Shape& { return *spec.shape(l.inputs[i]); };
  if (physical_type(spec.type(l.inputs[Input::kX])) != DataType::kFloat32) return std::nullopt;
  const auto form = ops::recurrent_form(l, shape(Input::kX), shape(Input::kW), shape(Input::kR));
  if (!form || num_elements(shape(Input::kX)) == 0 || form->sizes.hidden == 0) return std::nullopt;
  const Shape peepholes{form->sizes.directions, 3 * form->sizes.hidden};
  if (l.input(Input::kPeephole) != kNone && shape(Input::kPeephole) != peepholes) return std::nullopt;
  return form;
}

}  // namespace ulpscope
