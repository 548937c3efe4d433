// A network for concrete input shapes, with everything about it that no assignment of precisions changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/inference.h"
#include "graph/network.h"

namespace ulpscope {

struct Specialization {
  const Network* network = nullptr;
  std::vector<Shape> input_shapes;
  InferredNetwork inferred;
  IdMap<TensorId, std::vector<LayerId>> consumers;  ///< Per tensor; without folded layers, which never run.
  IdMap<TensorId, char> output;                     ///< Per tensor: it is a network output.
  /// Per layer: float arithmetic whose values reach an output as floats, so that a precision makes sense. False for
  /// arithmetic that only computes shapes, lengths or indices, and for what is folded into a constant.
  IdMap<LayerId, char> numeric;
  /// Per layer: all of its outputs are known before anything runs.
  IdMap<LayerId, char> folded;
  /// Per tensor: constant, but made from shapes, so that other input shapes give other elements.
  IdMap<TensorId, char> shape_dependent;

  const std::optional<Shape>& shape(TensorId id) const { return inferred.shapes[id]; }
  DataType type(TensorId id) const { return inferred.types[id]; }
  const Tensor& value(TensorId id) const { return inferred.values[id]; }
  /// Values are held as float32, whatever they are rounded to.
  bool is_held_as_float(TensorId id) const {
    return is_floating(type(id)) && physical_type(type(id)) == DataType::kFloat32;
  }
  bool is_constant(TensorId id) const { return static_cast<bool>(value(id)); }
  /// Per input of a layer: its value; null where it is absent or not known.
  std::vector<const Tensor*> known_inputs(const Layer& layer) const;
};

/// Throws Error(kInvalidFile) naming the layer when the shapes do not fit. `other`: one of the same network for other
/// shapes, or null; the constants that do not depend on shapes are shared with it.
std::shared_ptr<const Specialization> specialize(const Network& network, std::vector<Shape> input_shapes,
                                                 const Specialization* other = nullptr);

/// Per layer, without shapes: see Specialization::numeric.
IdMap<LayerId, char> numeric_layers(const Network& network, const IdMap<TensorId, DataType>& types);

}  // namespace ulpscope
