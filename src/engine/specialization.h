// A network for concrete input shapes, with everything about it that no assignment of precisions changes.
#pragma once

#include <memory>
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
  /// Per layer, where it is an Add of a constant vector along the output channels of a product: that product.
  IdMap<LayerId, LayerId> biased;
  /// Per product: the Add that is `biased` and alone reads it, so that both are one when the product reads elements;
  /// else kNone.
  IdMap<LayerId, LayerId> bias;
  /// Per body (Network::bodies): its network for the shapes that it gets first, as far as they are known. Null: the
  /// body does not fit what it gets.
  std::vector<std::shared_ptr<const Specialization>> bodies;

  const std::optional<Shape>& shape(TensorId id) const { return inferred.shapes[id]; }
  DataType type(TensorId id) const { return inferred.types[id]; }
  const Tensor& value(TensorId id) const { return inferred.values[id]; }
  /// Values are held as float32, whatever they are rounded to.
  bool is_held_as_float(TensorId id) const {
    return is_floating(type(id)) && physical_type(type(id)) == DataType::kFloat32;
  }
  bool is_constant(TensorId id) const { return static_cast<bool>(value(id)); }
  /// The product whose `bias` this layer is, or kNone.
  LayerId product_of_bias(LayerId add) const {
    return biased[add] != kNone && bias[biased[add]] == add ? biased[add] : kNone;
  }
  /// Per input of a layer: its value; null where it is absent or not known.
  std::vector<const Tensor*> known_inputs(const Layer& layer) const;
};

/// Throws Error(kInvalidFile) naming the layer when the shapes do not fit. `other`: one of the same network for other
/// shapes, or null; the constants that do not depend on shapes are shared with it.
std::shared_ptr<const Specialization> specialize(const Network& network, std::vector<Shape> input_shapes,
                                                 const Specialization* other = nullptr);

/// A layer of a network or of a body, however deep.
struct LayerPlace {
  LayerId id = kNone;                    ///< In the network (Network::layer()).
  LayerId holder = kNone;                ///< What runs the graph that it is in, likewise; kNone: it is in none.
  const Specialization* spec = nullptr;  ///< Of the graph that it is in.
  LayerId inside = kNone;                ///< Its id there.

  const Layer& layer() const { return spec->network->layers[inside]; }
  bool numeric() const { return spec->numeric[inside] != 0; }
  bool folded() const { return spec->folded[inside] != 0; }
};

/// All layers in the order in which they run, those of bodies behind the layer that runs them; bodies without a
/// specialization are left out.
std::vector<LayerPlace> all_layers(const Specialization& spec);

/// Per layer, without shapes: see Specialization::numeric.
IdMap<LayerId, char> numeric_layers(const Network& network, const IdMap<TensorId, DataType>& types);

}  // namespace ulpscope
