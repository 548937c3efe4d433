// Why a layer needs more than its low precision: from counts of its values, the words and figures of a Reason.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/specialization.h"
#include "graph/assignment.h"
#include "precision/explain.h"
#include "precision/operand_loss.h"
#include "precision/value_counts.h"

namespace ulpscope {

/// What the elements of a tensor are counted against; the scale is that of int8, 0 for floats.
using RangeKey = std::tuple<TensorId, Precision, float>;

/// What is counted of one layer.
struct LayerCount {
  SumCount sums;
  /// How many finite elements become infinite or NaN in low precision, and the largest of them.
  std::int64_t broken = 0;
  double largest_broken = 0;
  /// Of products in other formats than int8: the operands that are activations, and stored as elements.
  std::array<OperandLoss, 2> operands;

  /// `error`: low - exact.
  void add_broken(const Tensor& exact, const Tensor& error) {
    if (exact.type() != DataType::kFloat32) return;
    const float* y = exact.data<float>();
    const float* d = error.data<float>();
    for (std::int64_t i = 0; i < exact.size(); ++i)
      if (std::isfinite(y[i]) && !std::isfinite(d[i])) {
        ++broken;
        largest_broken = std::max(largest_broken, std::abs(static_cast<double>(y[i])));
      }
  }
  void add(const LayerCount& other) {
    sums.add(other.sums);
    broken += other.broken;
    largest_broken = std::max(largest_broken, other.largest_broken);
    for (std::size_t i = 0; i < operands.size(); ++i) operands[i].add(other.operands[i]);
  }
};

/// Takes what was counted of a layer over all samples, and chooses the reason that it shows.
class LayerExplainer {
 public:
  /// `harmless_overflow`: overflows of this layer are known not to matter.
  LayerExplainer(const Specialization& spec, const Assignment& low, LayerId id, bool harmless_overflow);

  bool is_sum() const {
    return (layer_.op->function == Function::kAdd || layer_.op->function == Function::kSub) && is_float(precision());
  }
  Precision precision() const { return low_.precision[id_]; }
  /// Operand 0 or 1 is an activation that the layer reads as elements of a format other than int8.
  bool has_elements(std::size_t operand) const;
  /// REQUIRES: has_elements().
  void add_elements(std::size_t operand, const Tensor& values, LayerCount& count) const;
  /// What is to be counted of an input and of the outputs; nothing of what is not quantized.
  std::optional<RangeKey> input_key(std::size_t index) const;
  RangeKey output_key(TensorId output) const { return {output, precision(), 0}; }
  void take(const std::map<RangeKey, RangeCount>& counts, const LayerCount& own);
  Reason reason() const;

 private:
  const std::string& name(TensorId id) const { return network_.tensor(id).name; }
  const std::string& output_name() const { return name(layer_.outputs[0]); }
  const RangeCount* count_of(const std::string& tensor) const;
  std::string_view type() const { return name_of(precision()); }
  /// Of the inputs that lose more by clipping than by the steps, the one that loses most; none: the number of inputs.
  std::size_t most_clipped() const;
  Reason saturation() const;
  /// For products in other formats than int8: what rounding does to their operands.
  Reason format_reason() const;
  OperandLoss weight_loss() const;
  Encoding encoding(std::size_t operand) const;
  /// The dimensions of an operand whose channels share scales with each other.
  std::vector<int> sharing(std::size_t operand, const Encoding& encoding) const;
  Reason int8_reason() const;
  Reason float_reason() const;
  Reason underflow(TensorId tensor, const RangeCount& count) const;
  /// Of a layer whose outputs are no floats.
  Reason comparison(const TypeRange& range) const;
  /// Large operands with a small result, or a small operand that the steps at the other's magnitude swallow.
  Reason cancellation(const TypeRange& range) const;
  /// Whether the operand is 0 wherever it does not swallow the other: what an attention mask covers is meant to be
  /// lost.
  bool is_mask(std::size_t operand) const;
  void fill(Reason& reason, TensorId tensor, std::int64_t count, std::int64_t total, double largest) const;

  const Specialization& spec_;
  const Network& network_;
  const Layer& layer_;
  const Assignment& low_;
  const LayerId id_;
  const bool harmless_overflow_;
  LayerCount own_;
  std::vector<RangeCount> inputs_;
  RangeCount output_;
};

}  // namespace ulpscope
