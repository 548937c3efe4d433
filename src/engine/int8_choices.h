// Where a build with int8 may use it: the scales of tensors, and the layers that have all of theirs.
#pragma once

#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"

namespace ulpscope {

class Int8Choices {
 public:
  /// Where no quantized precision is enabled, nothing is possible. Throws Error(kInvalidArgument) for a scale that is
  /// negative or not finite.
  Int8Choices(const Specialization& spec, const BuildOptions& options);

  /// Per tensor, 0: none; empty when no tensor has one. From the options and DequantizeLinear; layers that only move
  /// values pass on the scale of their input where their output has none of its own.
  const IdMap<TensorId, float>& scales() const noexcept { return scales_; }

  /// The layer has an int8 form and its inputs have scales.
  bool possible(LayerId id) const { return !possible_.empty() && possible_[id] != 0; }
  /// The tensors without a scale that keep a layer with an int8 form from it.
  std::vector<TensorId> missing(const Specialization& spec, LayerId id) const;
  /// Why a layer that was asked to run in int8 cannot; empty when it can. The bias of a product can if the product
  /// does.
  std::string refusal(const Specialization& spec, LayerId id) const;

  /// Warns once that these tensors have no scale.
  void warn(const Specialization& spec, std::vector<TensorId> without_scale) const;

 private:
  bool has_scale(TensorId id) const { return !scales_.empty() && scales_[id] != 0; }

  bool enabled_ = false;
  IdMap<TensorId, float> scales_;
  IdMap<LayerId, char> possible_;  ///< Per layer.
};

/// "a, b, c and 7 more": ten names at most.
std::string first_names(const std::vector<std::string>& names);

}  // namespace ulpscope
