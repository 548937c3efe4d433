// Choices of a network (ArgMax, ArgMin, TopK, a Softmax of large values) between values that rounding may exchange.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "graph/assignment.h"
#include "ops/rows.h"
#include "precision/trials.h"

namespace ulpscope {

/// Where two values are closer than their rounding errors, each program that rounds in other places may choose another
/// one, and what comes of it is no small error.
class CloseChoices {
 public:
  /// `chosen`: what the errors are of. Layers in bodies are left out.
  CloseChoices(const Specialization& spec, const Assignment& chosen);

  /// What a tensor holds in float32, for one sample: a Softmax counts only where its largest values are so large that
  /// their rounding may change its outputs by a quarter. For distinct tensors by several threads.
  void add(TensorId tensor, const Tensor& values);
  /// Runs all samples in float32 and as chosen where there are such layers, and warns once of all that choose between
  /// values closer than twice the errors there (rms of a row), in how many samples.
  void warn(Trials& trials) const;

 private:
  struct Choice {
    LayerId layer = kNone;
    std::int64_t count = 1;  ///< So many of the largest (of the smallest: by `sign`) are taken.
    float sign = 1;
    bool softmax = false;
  };
  struct Found {
    std::size_t samples = 0;
    std::int64_t close = 0, rows = 0;
  };
  void count(const Choice& choice, const Tensor& exact, const Tensor& low, Found& found) const;
  static bool is_close(const Choice& choice, std::span<const float> x, std::span<const float> y);
  /// Of what the layer chooses from. Nothing where it has no such axis.
  std::optional<ops::Rows> rows_of(const Choice& choice, const Tensor& values) const;
  TensorId operand(const Choice& choice) const;

  const Specialization& spec_;
  const Assignment& chosen_;
  std::vector<Choice> choices_;
  std::map<TensorId, char> large_;  ///< Operands of Softmax: whether they are.
};

}  // namespace ulpscope
