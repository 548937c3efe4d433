// The rules of docs/numerics.md once more, in the plainest form: reference kernels, and rounding around them.
#pragma once

#include <cmath>
#include <vector>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "graph/evaluate.h"
#include "graph/network.h"

namespace ulpscope::testing {

inline Tensor rounded(const Tensor& tensor, Rounding rounding) {
  if (!tensor || tensor.type() != DataType::kFloat32 || rounding == Rounding::kNone) return tensor;
  Tensor result = tensor.clone();
  for (std::int64_t i = 0; i < result.size(); ++i)
    result.data<float>()[i] = round_value(result.data<float>()[i], rounding);
  return result;
}

/// Runs a specialized network layer by layer.
class Emulator {
 public:
  Emulator(const Specialization& spec, const Assignment& assignment, const Grouping& grouping)
      : spec_(spec),
        network_(*spec.network),
        assignment_(assignment),
        grouping_(grouping),
        exact_(network_.tensors.size()),
        stored_(network_.tensors.size()) {}

  /// Physical types, rounded to the storage types.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) set(network_.inputs[i], to_physical(inputs[i]));
    for (LayerId l : network_.layers.ids())
      if (!spec_.folded[l]) run_layer(l);
    std::vector<Tensor> outputs;
    for (TensorId id : network_.outputs)
      outputs.push_back(rounded(spec_.is_constant(id) ? spec_.value(id) : stored_[id], rounding_of(storage(id))));
    return outputs;
  }

  /// What one layer makes of these values of all tensors, as if each had just been read from memory.
  Tensor layer_output(LayerId id, const IdMap<TensorId, Tensor>& values) {
    stored_ = values;
    exact_ = values;
    run_layer(id);
    return stored_[network_.layer(id).outputs[0]];
  }

 private:
  DataType storage(TensorId id) const { return assignment_.storage[id]; }
  int group(LayerId id) const { return grouping_.group_of[id]; }

  void set(TensorId id, Tensor value) {
    stored_[id] = rounded(value, rounding_of(storage(id)));
    exact_[id] = std::move(value);
  }

  Rounding load_rounding(const Layer& layer, LayerId id) const {
    if (!spec_.numeric[id] || layer.op->precision != PrecisionRule::kCompute) return Rounding::kNone;
    const Precision precision = assignment_.precision[id];
    return precision == Precision::kTF32 && layer.op->kind != OpKind::kContraction ? Rounding::kNone
                                                                                   : rounding_of(precision);
  }

  /// The BatchNormalization that is multiplied into the weights of this convolution, if there is one.
  LayerId folded_into(LayerId id) const {
    const Layer& layer = network_.layer(id);
    if (layer.op->name != "Conv" || group(id) < 0) return kNone;
    const auto& members = grouping_.groups[group(id)].layers;
    const TensorId output = layer.outputs[0];
    if (members.size() < 2) return kNone;
    const bool follows = members[0] == id && is_scale_shift(spec_, network_.layer(members[1]));
    const bool alone = grouping_.internal[output] && spec_.consumers[output] == std::vector<LayerId>{members[1]};
    return follows && alone ? members[1] : kNone;
  }

  void run_layer(LayerId id) {
    const Layer& layer = network_.layer(id);
    const Rounding rounding = load_rounding(layer, id);
    std::vector<Tensor> operands;
    for (TensorId input : layer.inputs) {
      if (input == kNone) {
        operands.emplace_back();
      } else if (spec_.is_constant(input)) {
        operands.push_back(rounded(spec_.value(input), rounding));
      } else {
        const LayerId producer = network_.tensor(input).producer;
        const bool inside = producer != kNone && group(producer) >= 0 && group(producer) == group(id) &&
                            layer.op->kind != OpKind::kContraction;
        operands.push_back(inside ? exact_[input] : rounded(stored_[input], rounding));
      }
    }
    if (skip_ == id) {
      // Done with the convolution before it.
      skip_ = kNone;
      return set(layer.outputs[0], operands[0]);
    }
    if (const LayerId batch_norm = folded_into(id); batch_norm != kNone) {
      fold(operands, layer, network_.layer(batch_norm), rounding);
      skip_ = batch_norm;
    }
    std::vector<const Tensor*> pointers;
    for (const Tensor& operand : operands) pointers.push_back(operand ? &operand : nullptr);
    // A bias that folding brought about has no tensor.
    Layer run = layer;
    run.inputs.resize(operands.size(), kNone);
    const std::vector<Tensor> outputs = evaluate_layer(network_, run, pointers);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (layer.outputs[o] != kNone) set(layer.outputs[o], outputs[o]);
  }

  void fold(std::vector<Tensor>& operands, const Layer& conv, const Layer& norm, Rounding rounding) const {
    const auto parameter = [&](std::size_t i, std::int64_t c) {
      return static_cast<double>(spec_.value(norm.inputs[i]).data<float>()[c]);
    };
    const Tensor& weights = spec_.value(conv.inputs[1]);
    Tensor scaled = weights.clone(), bias(DataType::kFloat32, {weights.shape()[0]});
    const std::int64_t per_channel = weights.size() / bias.size();
    const bool biased = operands.size() > 2 && operands[2];
    for (std::int64_t c = 0; c < bias.size(); ++c) {
      const double scale =
          parameter(1, c) / std::sqrt(parameter(4, c) + static_cast<double>(norm.attributes.real("epsilon", 1e-5f)));
      for (std::int64_t k = 0; k < per_channel; ++k)
        scaled.data<float>()[c * per_channel + k] *= static_cast<float>(scale);
      const double own = biased ? static_cast<double>(spec_.value(conv.inputs[2]).data<float>()[c]) : 0.0;
      bias.data<float>()[c] = static_cast<float>((own - parameter(3, c)) * scale + parameter(2, c));
    }
    operands.resize(3);
    operands[1] = rounded(scaled, rounding);
    operands[2] = rounded(bias, rounding);
  }

  const Specialization& spec_;
  const Network& network_;
  const Assignment& assignment_;
  const Grouping& grouping_;
  IdMap<TensorId, Tensor> exact_, stored_;  ///< As computed, and as stored.
  LayerId skip_ = kNone;
};

/// The distance between neighboring values of this type around `value`.
inline double spacing(DataType type, double value) {
  const int kept = type == DataType::kFloat16 ? 10 : type == DataType::kBFloat16 ? 7 : 23;
  const int lowest = type == DataType::kFloat16 ? -14 : -126;
  int exponent = lowest;
  if (value != 0 && std::isfinite(value)) exponent = std::max(lowest, std::ilogb(value));
  return std::ldexp(1.0, exponent - kept);
}

}  // namespace ulpscope::testing
