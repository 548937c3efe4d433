// Layers that read elements as a file has them: QuantizeLinear and DequantizeLinear, and weights in narrow formats.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "engine/element_readers.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "onnx/export.h"

namespace ulpscope {

/// Why a file cannot have this layer in its precision, which stores elements, as the engine computes it; empty: it can.
/// `fixed_shapes`: what is computed from the shapes of the inputs is constant. `normalization`: the BatchNormalization
/// in its weights, or kNone.
std::string integer_obstacle(const Specialization& spec, const Assignment& assignment, LayerId id, bool fixed_shapes,
                             LayerId normalization);

/// Collects what changes for the layers that read elements.
class IntegerExport {
 public:
  explicit IntegerExport(const Specialization& spec) : spec_(spec) {}

  /// The float weights of a convolution, where they are not those of the network (a BatchNormalization went in).
  void set_weights(LayerId convolution, Tensor weights) { weights_[convolution] = std::move(weights); }

  /// Adds to `quantized`, `stored` and `copied`, by what `typing` says. REQUIRES: is_typed_with_integers(), and it, or
  /// the product whose bias it is, has no integer_obstacle().
  void add(const Assignment& assignment, const Readings& readings, LayerId id, TypedChanges& changes);
  /// Adds the weights of a layer that stores these alone as elements, and reads them in this type. REQUIRES: no
  /// integer_obstacle().
  void add_weights(const Assignment& assignment, Precision precision, DataType number, LayerId id,
                   TypedChanges& changes);

  int constants() const noexcept { return constants_; }
  int per_channel() const noexcept { return per_channel_; }
  /// Of scales of blocks under a second one: all, and those that are the smallest of their format in place of 0.
  std::int64_t block_scales() const noexcept { return block_scales_; }
  std::int64_t smallest_scales() const noexcept { return smallest_scales_; }

 private:
  TypedChanges::Quantized quantize(const Assignment& assignment, LayerId id, std::size_t input, Precision precision,
                                   DataType number);
  /// Nobody reads this float32 tensor but Casts to narrower types.
  bool read_narrow_alone(const Typing& typing, TensorId id) const;

  const Specialization& spec_;
  std::map<LayerId, Tensor> weights_;
  /// Constants that several layers read in the same way are quantized once. By tensor, precision, axis (-1: one scale),
  /// and the type in which they are read; the axis tells apart what their errors count, too.
  std::map<std::tuple<TensorId, Precision, std::int64_t, DataType>, TypedChanges::Quantized> shared_;
  int constants_ = 0, per_channel_ = 0;
  std::int64_t block_scales_ = 0, smallest_scales_ = 0;
};

}  // namespace ulpscope
