#include "graph/dequantized_constant.h"

#include "graph/op.h"

namespace ulpscope {

bool is_dequantized_constant(const Network& network, TensorId id) {
  const LayerId producer = network.tensor(id).producer;
  if (producer == kNone || network.tensor(id).value) return false;
  const Layer& layer = network.layer(producer);
  const TensorId source = layer.input(0);
  if (source == kNone) return false;
  if (layer.op->function == Function::kDequantize) return static_cast<bool>(network.tensor(source).value);
  return layer.op->kind == OpKind::kMovement && is_dequantized_constant(network, source);
}

}  // namespace ulpscope
