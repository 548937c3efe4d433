// Where a build may use precisions that store operands as elements: the scales of tensors, and the layers that have all
// of theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

class QuantizedChoices {
 public:
  /// What the constant weights of a product hold that some elements do not stand for.
  enum class Extreme : std::uint8_t { kNone, kLarge, kNotFinite };

  /// Where no such precision is enabled, nor may be asked for, nothing is possible. Throws Error(kInvalidArgument) for
  /// a scale that is negative or not finite.
  QuantizedChoices(const Specialization& spec, const BuildOptions& options);

  /// Per tensor, that of int8 (largest value / 127), 0: none; empty when no tensor has one. From the options and
  /// DequantizeLinear; layers that only move values pass on the scale of their input where their output has none of its
  /// own.
  const IdMap<TensorId, float>& scales() const noexcept { return scales_; }

  /// Sets `scale_choice` and `channel_weights`. `options`: those that this was made with.
  void add_scale_choice(const BuildOptions& options, Assignment& assignment) const;

  /// Those that are enabled in which the layer has a form and its inputs have scales, from the lowest on.
  std::vector<Precision> possible(LayerId id) const;
  /// The layer has a form in this precision and its inputs have scales.
  bool is_possible(const Specialization& spec, LayerId id, Precision precision) const;
  /// The tensors without a scale that keep the layer from the enabled precisions in which it has a form.
  std::vector<TensorId> missing(const Specialization& spec, LayerId id) const;
  /// Why a layer that was asked to run in this precision cannot; empty when it can. The bias of a product can if the
  /// product does.
  std::string refusal(const Specialization& spec, LayerId id, Precision precision) const;

  /// Warns once that these tensors have no scale.
  void warn(const Specialization& spec, std::vector<TensorId> without_scale) const;
  /// Says once which products lack the lowest enabled format, and why.
  void log_fallbacks(const Specialization& spec) const;

 private:
  bool has_scale(TensorId id) const { return !scales_.empty() && scales_[id] != 0; }
  std::vector<TensorId> missing(const Specialization& spec, LayerId id, Precision precision) const;
  /// form_obstacle(), or that the weights are no numbers that blocks can hold.
  std::string obstacle(const Specialization& spec, LayerId id, Precision precision) const;

  std::vector<Precision> enabled_;  ///< That store elements, from the lowest on.
  IdMap<TensorId, float> scales_;
  IdMap<LayerId, PrecisionSet> possible_;  ///< Per layer.
  IdMap<LayerId, Extreme> extremes_;       ///< Per layer.
  IdMap<TensorId, SharedChannelWeights> channel_weights_;
};

/// "a, b, c and 7 more": ten names at most.
std::string first_names(const std::vector<std::string>& names);

}  // namespace ulpscope
