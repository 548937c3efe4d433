// Which precision every layer computes in and which type every tensor is stored in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/encoding.h"
#include "formats/rounding.h"
#include "graph/inference.h"
#include "graph/network.h"
#include "ulpscope/precision.h"

namespace ulpscope {

/// The precision that `layer.precision = type` asks for; nothing for types that no float layer computes in.
std::optional<Precision> precision_from_type(DataType type) noexcept;
/// The type in which a layer of this precision stores its output (kINT8: see Assignment::int8_output).
DataType storage_of(Precision precision) noexcept;
/// What happens to the values that a layer of this precision reads.
Rounding rounding_of(Precision precision) noexcept;
/// True when rounding values stored as `storage` would change none of them.
bool is_exact(DataType storage, Rounding rounding) noexcept;

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
  LayerTypes asked_in_bodies;
  /// Per tensor: the int8 scale, real value = scale * integer; 0: none. Empty: no tensor has one.
  IdMap<TensorId, float> scale;
  /// What an int8 layer stores: the next higher enabled float type.
  DataType int8_output = DataType::kFloat32;

  /// The type in which this layer stores its output, before constraints and declared types have a say.
  DataType stored_by(LayerId id) const noexcept {
    const Precision p = precision[id];
    return p == Precision::kINT8 ? int8_output : storage_of(p);
  }
};

/// How a layer reads an operand: in the format that it is stored in, or the narrower one of the layer's precision.
/// Operands of an int8 layer have a scale per tensor, its constants one per output channel. Nothing for types without a
/// number format (int64, bool, ...) and for absent inputs.
std::optional<Encoding> operand_encoding(const Network& network, const Assignment& assignment, LayerId layer,
                                         std::size_t input);
/// How it stores an output.
std::optional<Encoding> output_encoding(const Network& network, const Assignment& assignment, LayerId layer,
                                        std::size_t output);

/// Fills `assignment.storage` from `assignment.precision`: an output-type constraint if `constraints_hold`, else the
/// declared type if that is a narrow float, else the producer's precision; movement layers pass on the widest type of
/// their inputs, constants but for those of the layer alone. `strongly_typed`: the declared types, always. `requested`,
/// per layer: instead of `Layer::precision`. Fills `pinned` and `asked`, too.
void derive_storage(const Network& network, const InferredNetwork& inferred, bool constraints_hold, bool strongly_typed,
                    Assignment& assignment, const LayerTypes* requested = nullptr);

/// The same after `assignment.precision` changed, or layers were added; what was `asked` for is so still.
void update_storage(const Network& network, const InferredNetwork& inferred, Assignment& assignment);

/// What an assignment says of the layers in a body, with the storage of its tensors; arguments as in derive_storage().
Assignment assignment_of_body(const Assignment& around, const Body& body, const InferredNetwork& inferred,
                              bool constraints_hold, bool strongly_typed);

}  // namespace ulpscope
