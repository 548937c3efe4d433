#include "calibration/zero_rows.h"

#include <algorithm>

#include "calibration/row_range.h"
#include "calibration/scaling_model.h"

namespace ulpscope {

ZeroRows::ZeroRows(const Specialization& spec) : spec_(spec) {
  for (const Layer& layer : spec.network->layers)
    for (const TensorId output : present(layer.outputs))
      if (!spec.is_constant(output)) known_[output] = may_make(layer);
}

bool ZeroRows::possible(TensorId id) {
  if (const auto found = known_.find(id); found != known_.end()) return found->second;
  if (!spec_.is_constant(id)) return known_[id] = false;  // An input.
  RowRange range;
  if (spec_.type(id) == DataType::kFloat32) range.add(spec_.value(id));
  return known_[id] = range.has_zero_rows();
}

bool ZeroRows::may_make(const Layer& layer) {
  // Whatever weights hold, a sum of products is 0 where its data are.
  const bool sums = layer.op->kind == OpKind::kContraction;
  const auto is = [&](std::size_t input) {
    const TensorId id = layer.input(input);
    return id != kNone && !(sums && input < 2 && spec_.is_constant(id)) && possible(id);
  };
  const auto is_open = [&](std::size_t input) { return layer.input(input) == kNone || is(input); };
  switch (layer.op->function) {
    case Function::kAdd:
    case Function::kSub:
      return is(0) && is(1);
    case Function::kRelu:
      return true;
    case Function::kSoftmax:
    case Function::kSigmoid:
    case Function::kExp:
    case Function::kCos:
      return false;
    case Function::kTanh:
    case Function::kErf:
    case Function::kGelu:
    case Function::kSwish:
      return is(0);
    default:
      break;
  }
  switch (scaling_of(layer)) {
    case Scaling::kFirst:
    case Scaling::kQuotient:
    case Scaling::kPower:
    case Scaling::kSquare:
    case Scaling::kRoot:
      return is(0);
    case Scaling::kProduct:
      return (is(0) || is(1)) && is_open(2);
    case Scaling::kInverse:
      return false;
    case Scaling::kNormalization:
      return is(0) && is_open(2);
    case Scaling::kTogether:
      return std::ranges::any_of(present(layer.inputs), [&](TensorId id) { return possible(id); });
    default:
      return true;
  }
}

}  // namespace ulpscope
