#include "engine/element_readers.h"

#include <algorithm>

#include "engine/element_forms.h"
#include "engine/int8.h"

namespace ulpscope {
namespace {

bool has_scales(const Specialization& spec, const Assignment& assignment, LayerId id) {
  return std::ranges::all_of(calibrated_inputs(spec, id, assignment.precision[id]), [&](TensorId input) {
    return dequantized(spec, input) || (!assignment.scale.empty() && assignment.scale[input] > 0);
  });
}

}  // namespace

Readings find_element_readers(const Specialization& spec, const Assignment& assignment) {
  const Network& network = *spec.network;
  Readings result(network.layers.size(), Reading::kNumbers);
  const bool dequantizes = std::ranges::any_of(
      network.layers, [](const Layer& layer) { return layer.op->function == Function::kDequantize; });
  for (const auto& [l, layer] : network.layers.items()) {
    const Precision precision = assignment.precision[l];
    if (!is_float(precision)) {
      if (has_form(spec, l, precision) && has_scales(spec, assignment, l))
        result[l] = is_quantized(precision) ? Reading::kQuantized : Reading::kCodedWeights;
    } else if (dequantizes && reads_integers(spec, l)) {
      result[l] = is_product(layer.op->function) ? Reading::kQuantizedInFile : Reading::kDequantized;
    }
    const LayerId product = spec.product_of_bias(l);
    if (product == kNone || !reads_elements(result[product])) continue;
    const DataType stored = assignment.stored_by(l);
    if (stored == assignment.int8_output || stored == DataType::kFloat32) result[l] = Reading::kBias;
  }
  return result;
}

}  // namespace ulpscope
