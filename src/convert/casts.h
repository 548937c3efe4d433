// The types of the typed file that computes what an assignment computes, with as few casts as possible.
#pragma once

#include <functional>
#include <vector>

#include "engine/element_readers.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "graph/typing.h"

namespace ulpscope {

struct CastOptions {
  /// Per layer: it reads and writes the declared types (it is inside of a function that stays as it is). Empty: none.
  IdMap<LayerId, char> frozen;
  /// Whether the file can have the layer in a narrow float type.
  std::function<bool(LayerId, DataType)> expressible;
  /// Types of the network's inputs and outputs; kUndefined, or empty: as declared.
  std::vector<DataType> inputs, outputs;
  /// The input shapes are all fixed: what is computed from shapes is constant, too.
  bool fixed_shapes = false;
  /// Layers that choose among values (Relu, Max, Clip, ...) may take another type than the assignment's.
  bool free_selection = true;
};

/// Layers with a precision keep it; layers that move values, casts of the model's own to float32, and layers that
/// choose among values that are rounded already (Relu, Clip, Max, Min, Abs, Neg, and maxima of windows and axes) take
/// the type that leaves the fewest casts. Rounding happens to the same values as under the assignment, so the results
/// have the same bits at every level of fusion: a layer keeps the assignment's type where another one would let
/// neighbors fuse that round between them, or part some that do not. A layer in int8 reads float32, which its
/// DequantizeLinear gives, and writes what it stores; a product whose bias is one with it (Reading::kBias) leaves that
/// to the bias. REQUIRES: no layer computes in fp8, `assignment.pinned` is all 0, and `expressible` holds for every
/// layer in fp16 or bf16, and for those that may_round_what_it_moves() in what they store.
Typing place_casts(const Specialization& spec, const Assignment& assignment, const CastOptions& options);

/// The type that a movement layer stores the floats in that it moves; float32 where it moves none.
DataType stored_by_movement(const Specialization& spec, const Assignment& assignment, LayerId id);

/// The layer moves values and stores them in a narrower type than some of them have, or combines them: a file has to
/// say it in that type.
bool may_round_what_it_moves(const Specialization& spec, const Assignment& assignment, LayerId id);

/// The type in which a layer in float32 stores its outputs, since the file has them so, behind a Cast; kUndefined: as
/// it computes.
DataType stored_by_file(const Specialization& spec, const Assignment& assignment, LayerId id);

/// Per tensor that is constant in the file without being there: its elements.
IdMap<TensorId, Tensor> computed_constants(const Specialization& spec, const Typing& typing);

/// The typed file has the layer behind DequantizeLinear, or it is the bias of such a product.
bool is_typed_with_integers(const Assignment& assignment, const Readings& readings, LayerId id);

}  // namespace ulpscope
