// When outputs are good enough: a metric or tolerances.
#pragma once

#include <string>

#include "ulpscope/per_name.h"

namespace ulpscope {

/// Either a metric (built in, or a user's script) with thresholds, or tolerances. Outputs that neither names nor a
/// default (the empty name) covers are not judged by a metric, and judged by 1e-5 with tolerances.
struct CriterionOptions {
  /// Errors: "rel-l2", "rel-max", "one-minus-cos", "kl" (nats, over the last axis); better if higher: "psnr", "snr"
  /// (dB), "top-k", "iou". Empty: tolerances.
  std::string metric;
  /// Instead of `metric`: "FILE.py[:FUNC]", a Python function metric(golden, candidate) over lists of dictionaries of
  /// arrays, one per sample, that returns a number or one per output.
  std::string metric_script;
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
