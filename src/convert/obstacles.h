// What a typed file cannot have, and why.
#pragma once

#include <map>
#include <string>

#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// The newest that TensorRT and ONNX Runtime both load.
constexpr int kNewestOpset = 25;

/// Of the layers of a network and of its bodies, in a file of one opset.
class Obstacles {
 public:
  /// `frozen`: layers inside of model-local functions that stay as they are.
  Obstacles(const Specialization& spec, const IdMap<LayerId, char>& frozen);

  void set_opset(int opset) noexcept { opset_ = opset; }
  /// All layers.
  const std::map<LayerId, LayerPlace>& places() const noexcept { return places_; }
  /// Of a layer of the network or of a body.
  DataType narrow_type_in_file(LayerId id) const;
  /// What is computed from the shapes of the inputs is constant.
  bool fixed_shapes() const noexcept { return fixed_shapes_; }

  /// Why the file cannot have the layer in this type; empty: it can.
  std::string in_type(LayerId id, DataType type) const;
  /// Why the file cannot have the layer in its precision, which stores elements; empty: it can. `normalization`: the
  /// BatchNormalization in its weights, or kNone.
  std::string in_elements(LayerId id, const Assignment& assignment, LayerId normalization) const;

 private:
  const Specialization& spec_;
  const IdMap<LayerId, char>& frozen_;
  std::map<LayerId, LayerPlace> places_;
  bool fixed_shapes_;
  int opset_ = 0;
};

}  // namespace ulpscope
