// Which precision every layer computes in and which type every tensor is stored in.
#pragma once

#include <string>

#include "formats/accumulator.h"
#include "formats/rounding.h"
#include "graph/attention_rule.h"
#include "graph/inference.h"
#include "graph/layer_form.h"
#include "graph/network.h"
#include "graph/scale_choice.h"
#include "ulpscope/precision.h"

namespace ulpscope {

/// True when rounding values stored as `storage` would change none of them.
bool is_exact(DataType storage, Rounding rounding) noexcept;

/// What a layer runs in that is asked for this precision: the highest one where only products have it and it is none.
Precision precision_in(const Layer& layer, Precision asked) noexcept;

struct Assignment {
  /// Per layer, those in bodies included (Network::num_all_layers); kFP32 for layers without float arithmetic, and for
  /// those in bodies that the list does not reach.
  IdMap<LayerId, Precision> precision;
  IdMap<TensorId, DataType> storage;  ///< Per tensor; its declared type when that is not a float.
  IdMap<TensorId, char> pinned;       ///< Per tensor: an output-type constraint holds, so it is stored.
  /// Per tensor: the type that it was asked to be stored in, as an output, or as what a movement layer or a Constant
  /// makes; kUndefined: none. Empty: none of them was.
  IdMap<TensorId, DataType> asked;
  IdMap<LayerId, std::string> reason;  ///< Per layer, as `precision`: why; one clause.
  /// Per layer, as `precision`: what layers in bodies are asked for; empty: what the layers themselves ask for.
  Requests asked_in_bodies;
  /// Per tensor: the int8 scale, real value = scale * integer; 0: none. Empty: no tensor has one.
  IdMap<TensorId, float> scale;
  ScaleChoice scale_choice;
  /// Per tensor: for constant weights, what their errors count for kActivations. Empty: nothing is known.
  IdMap<TensorId, SharedChannelWeights> channel_weights;
  /// What a quantized layer stores: the next higher enabled float type.
  DataType int8_output = DataType::kFloat32;
  Accumulation accumulation = Accumulation::kFP32;  ///< Of all products of narrow floats.
  AttentionRule attention = AttentionRule::kNormalized;

  /// The type in which this layer stores its output, before constraints and declared types have a say.
  DataType stored_by(LayerId id) const noexcept {
    const DataType stored = form_of(precision[id]).stored;
    return stored == DataType::kUndefined ? int8_output : stored;
  }
};

/// Fills `assignment.storage` from `assignment.precision`: an output-type constraint if `constraints_hold`, else the
/// declared type if that is a narrow float, else the producer's precision; movement layers pass on the widest type of
/// their inputs, constants but for those of the layer alone. `strongly_typed`: the declared types, always. `requested`,
/// per layer: instead of `Layer::precision`. Fills `pinned` and `asked`, too.
void derive_storage(const Network& network, const InferredNetwork& inferred, bool constraints_hold, bool strongly_typed,
                    Assignment& assignment, const Requests* requested = nullptr);

/// The same after `assignment.precision` changed, or layers were added; what was `asked` for is so still.
void update_storage(const Network& network, const InferredNetwork& inferred, Assignment& assignment);

/// What an assignment says of the layers in a body, with the storage of its tensors; arguments as in derive_storage().
Assignment assignment_of_body(const Assignment& around, const Body& body, const InferredNetwork& inferred,
                              bool constraints_hold, bool strongly_typed);

}  // namespace ulpscope
