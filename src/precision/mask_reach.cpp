#include "precision/mask_reach.h"

#include <algorithm>
#include <utility>

#include "ops/forms.h"

namespace ulpscope {
namespace {

bool is_one_of(Function function, std::initializer_list<Function> all) {
  return std::ranges::find(all, function) != all.end();
}

class Walk {
 public:
  explicit Walk(const Network& network) : network_(network), consumers_(network.consumers()) {}

  MaskReach from(TensorId constant) {
    add(constant, false);
    for (std::size_t i = 0; i < reach_.tensors.size(); ++i) {
      const TensorId id = reach_.tensors[i];
      if (std::ranges::find(network_.outputs, id) != network_.outputs.end()) reach_.only_masks = false;
      for (const LayerId reader : consumers_[id]) {
        const Layer& layer = network_.layer(reader);
        for (std::size_t input = 0; input < layer.inputs.size(); ++input)
          if (layer.inputs[input] == id && !pass(layer, input, has_data(id))) reach_.only_masks = false;
      }
    }
    return std::move(reach_);
  }

 private:
  bool may_be_float(TensorId id) const {
    const DataType type = network_.tensor(id).type;
    return type == DataType::kUndefined || is_floating(type);
  }
  bool is_reached(TensorId id) const { return std::ranges::find(reach_.tensors, id) != reach_.tensors.end(); }
  bool has_data(TensorId id) const {
    return data_[std::ranges::find(reach_.tensors, id) - reach_.tensors.begin()] != 0;
  }

  void add(TensorId id, bool data) {
    if (is_reached(id)) return;
    reach_.tensors.push_back(id);
    data_.push_back(data ? 1 : 0);
  }

  /// Something else than the constant, other constants and shapes takes part in what the layer computes.
  bool meets_data(const Layer& layer) const {
    return std::ranges::any_of(present(layer.inputs), [&](TensorId id) {
      if (is_reached(id)) return has_data(id);
      const TensorInfo& info = network_.tensor(id);
      return !info.value && (may_be_float(id) || info.type == DataType::kBool);
    });
  }

  /// Goes on behind a reader. False where it takes the elements for something else than a mask. `data`: they were
  /// computed from data, too.
  bool pass(const Layer& layer, std::size_t input, bool data) {
    const OpDef& op = *layer.op;
    if (op.reads_shape_only || ops::is_mask_operand(layer, input)) return true;
    if (op.kind == OpKind::kControl) return false;
    if (op.precision != PrecisionRule::kMovement && !hands_on(layer, input, data)) return ends(layer, data);
    for (const TensorId output : present(layer.outputs))
      if (may_be_float(output)) add(output, meets_data(layer));
    return true;
  }

  bool hands_on(const Layer& layer, std::size_t input, bool data) const {
    using F = Function;
    const F function = layer.op->function;
    if (is_one_of(function, {F::kAdd, F::kSub, F::kSum, F::kMul, F::kNeg, F::kCopy, F::kIdentity})) return true;
    if (function == F::kDiv) return input == 0;
    // Else it is the bound.
    if (is_one_of(function, {F::kMin, F::kMax, F::kReduceMin, F::kReduceMax})) return data;
    if (function == F::kClip) return input == 0 && data;
    return ops::is_cast(layer) && is_floating(network_.tensor(layer.outputs[0]).type);
  }

  bool ends(const Layer& layer, bool data) const {
    using F = Function;
    if (is_one_of(layer.op->function, {F::kSoftmax, F::kLogSoftmax, F::kExp, F::kSigmoid, F::kHardSigmoid, F::kTanh,
                                       F::kErf, F::kRelu, F::kQuantize, F::kFakeQuantize}))
      return true;
    return data && std::ranges::none_of(present(layer.outputs), [&](TensorId id) { return may_be_float(id); });
  }

  const Network& network_;
  const IdMap<TensorId, std::vector<LayerId>> consumers_;
  MaskReach reach_;
  std::vector<char> data_;  ///< Per reached tensor: it was computed from data, too.
};

}  // namespace

MaskReach mask_reach(const Network& network, TensorId constant) { return Walk(network).from(constant); }

}  // namespace ulpscope
