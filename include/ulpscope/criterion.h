// When outputs are good enough: a metric or tolerances.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ulpscope/per_name.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A metric that the calling program brings. Lower is better, unless it says otherwise.
struct MetricFunction {
  std::string name;      ///< For messages and answers.
  std::string identity;  ///< What tells it from others of its name, for journals.
  bool higher_is_better = false;
  /// The outputs of one sample by name, which are of equal shapes, and finite where the golden ones are. Returns a
  /// value per output, or one for all of them under the empty name. What it throws ends the search.
  std::function<std::map<std::string, double>(const std::map<std::string, Tensor>& golden,
                                              const std::map<std::string, Tensor>& candidate)>
      evaluate;
};

/// Either a metric (built in, a user's script or a function) with thresholds, or tolerances. Outputs that neither names
/// nor a default (the empty name) covers are not judged by a metric, and judged by 1e-5 with tolerances.
struct CriterionOptions {
  /// Errors: "rel-l2", "rel-max", "one-minus-cos", "kl" (nats, over the last axis); better if higher: "psnr", "snr"
  /// (dB), "top-k", "iou". Empty: rel-l2 where there is a threshold, else tolerances.
  std::string metric;
  /// Instead of `metric`: "FILE.py[:FUNC]", a Python function metric(golden, candidate) over lists of dictionaries of
  /// arrays, one per sample, that returns a number or one per output.
  std::string metric_script;
  /// Or instead of both: the worst sample counts. Answers cannot say it: verify() has to be told again.
  std::optional<MetricFunction> metric_function;
  /// What the metric must meet; at least one.
  PerName<double> threshold;
  int top_k = 1;           ///< Of "top-k": the K largest of each row.
  double iou_level = 0.5;  ///< Of "iou": masks are values above this.

  /// Tolerances: |error| <= atol or |error| <= rtol * |golden|.
  PerName<double> atol, rtol;
  /// What is held against them: "elemwise" (the default: each element), "max", "mean", "median" or "quantile".
  PerName<std::string> error_stat;
  PerName<double> error_quantile;  ///< Of "quantile", from 0 to 1; default: 0.99.
  /// Golden infinities are allowed, and met by the same infinity.
  bool infinities_equal = false;
};

}  // namespace ulpscope
