// A network as equations: which powers of two its tensors may be multiplied by, so that no output changes.
#pragma once

#include <vector>

#include "calibration/exponents.h"
#include "engine/specialization.h"
#include "graph/network.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// The epsilon of a normalization that does not say its own.
inline constexpr float kAbsentEpsilon = 1e-5F;

/// Tensor t may hold its values times 2^exponent[t], where every change below is made.
struct ScalingModel {
  ExponentSystem system;
  IdMap<TensorId, Exponent> exponent;  ///< 0 for all but float32 values.
  struct Change {
    ScaleEdit::Kind kind = ScaleEdit::Kind::kConstant;
    LayerId layer = kNone;  ///< kSharedConstant: one of those that read it.
    int input = 0;
    TensorId tensor = kNone;  ///< What is multiplied; none for kEpsilon.
    Exponent exponent;        ///< By what.
  };
  std::vector<Change> changes;
};

/// The rules of the operators (OpDef::scaling), with exponent 0 for inputs, outputs, constants that hold masks, and
/// whatever graphs of control flow read. Small constants have one exponent per layer that reads them.
ScalingModel scaling_model(const Specialization& spec);

/// OpDef::scaling of the layer.
Scaling scaling_of(const Layer& layer);

/// The constant that holds this value, as the file has it: a weight or a Constant layer's output. Null: it has none.
const Tensor* stored_constant(const Network& network, TensorId id);

/// The layers that keep a tensor from being scaled: the nearest ones, up to `most`, that are no part of its region, and
/// "output 'y'" and the like. A region ends where a change of the model takes up any exponent.
std::vector<std::string> pins_of(const Specialization& spec, const ScalingModel& model, TensorId tensor,
                                 std::size_t most);

}  // namespace ulpscope
