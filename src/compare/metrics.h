// How far an output is from the golden one, as one number: metrics, and the share of a tolerance that is used.
//
// All are computed in double from the exact values (16-bit floats widened), summed in fixed blocks: the same bits for
// every number of threads. `golden` is the reference g, `candidate` is c, n the number of elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

enum class MetricKind : std::uint8_t {
  /// |c - g|_2 / |g|_2. Two zero tensors: 0; a zero golden with another candidate: infinity.
  kRelativeL2,
  /// max |c - g| / max |g|, zeros as above.
  kRelativeMax,
  /// 1 - <g, c> / (|g|_2 |c|_2) over the flattened output, computed as |g / |g|_2 - c / |c|_2|_2^2 / 2, which loses no
  /// digits. In [0, 2]. Two zero tensors: 0; one: 1.
  kOneMinusCos,
  /// Peak signal-to-noise ratio in dB: 10 log10(max |g|^2 / mean (c - g)^2). No difference: infinity; a zero golden
  /// otherwise: -infinity. (`run --compare psnr` is Polygraphy's: there the peak is the largest value of the first
  /// result, or 1 where that is not positive.)
  kPsnr,
  /// Signal-to-noise ratio in dB: 10 log10(sum g^2 / sum (c - g)^2), special cases as above.
  kSnr,
  /// Kullback-Leibler divergence KL(G || C) = sum G ln(G / C) in nats, per row (last axis), averaged over the rows;
  /// small ones keep their digits. Where all golden elements are >= 0 and all golden rows sum to 1 within 1e-3, rows
  /// are probabilities: both are normalized, and the candidate's are held above 1e-12, so that an underflow costs what
  /// it is worth instead of infinity. Otherwise rows are logits, and G and C their softmax; -inf is a probability of 0.
  kKl,
  /// Per row (last axis) the share of the golden k largest elements that are among the candidate's k largest, averaged
  /// over the rows; of equal elements the one at the lower index is the larger. k = 1: the share of rows with the same
  /// argmax.
  kTopK,
  /// Intersection over union |G and C| / |G or C| of the masks g > iou_level and c > iou_level. Two empty masks: 1.
  kIou,
};

struct MetricParameters {
  std::int64_t k = 1;      ///< For kTopK.
  double iou_level = 0.5;  ///< For kIou.
};

/// "rel-l2", "rel-max", "one-minus-cos", "psnr", "snr", "kl", "top-k", "iou".
std::string_view name_of(MetricKind kind);
std::optional<MetricKind> metric_from_name(std::string_view name);
const std::vector<std::string>& metric_names();
/// psnr, snr, top-k and iou.
bool higher_is_better(MetricKind kind);

/// The metric. Tensors without elements are equal. Where golden and candidate are the same infinity, kRelativeL2 to
/// kSnr leave the element out; any other NaN or infinity gives NaN (kTopK, kIou: infinities are ordinary large values).
/// Throws Error(kInvalidArgument) for kTopK when rows have no more than k elements, and for kKl when they have less
/// than two: then the answer is the same whatever they hold.
/// REQUIRES: equal shapes.
double compute_metric(MetricKind kind, const Tensor& golden, const Tensor& candidate,
                      const MetricParameters& parameters = {});

/// Whether kKl takes the rows of golden results for probabilities, and not for logits.
bool rows_are_probabilities(const Tensor& golden);

/// The share of the threshold that `value` uses: at most 1 exactly where the value meets the threshold. value /
/// threshold; for psnr and snr the ratio of amplitudes 10^((threshold - value) / 20); for top-k and iou (1 - value) /
/// (1 - threshold). Where the threshold leaves no room (0, or 1 for top-k and iou): 0 or infinity. NaN: infinity.
double share_of_threshold(MetricKind kind, double value, double threshold);
/// The threshold as a loss: itself; 10^(-threshold / 20) for psnr and snr; 1 - threshold for top-k and iou.
double threshold_as_loss(MetricKind kind, double threshold);

/// Polygraphy's tolerances on one output.
struct Tolerance {
  double atol = 1e-5, rtol = 1e-5;
  std::string statistic = "elemwise";  ///< elemwise, max, mean, median or quantile.
  double quantile = 0.99;
  bool infinities_equal = false;
};

struct ToleranceUse {
  double used = 0;            ///< At most 1 exactly where `--compare simple` passes.
  double absolute_error = 0;  ///< The statistic of the absolute difference (elemwise: the largest).
};

/// elemwise: the largest min(absolute / atol, relative / rtol) of all elements, differences as difference.h takes them
/// with the candidate first; other statistics: min(statistic of absolute / atol, statistic of relative / rtol). 0 / 0
/// is 0, NaN infinity. REQUIRES: equal shapes; a statistic of the list.
ToleranceUse share_of_tolerance(const Tensor& golden, const Tensor& candidate, const Tolerance& tolerance);

/// Where values are not finite.
struct NonFinite {
  std::int64_t nan = 0, inf = 0;  ///< In the tensor.
};
NonFinite count_non_finite(const Tensor& tensor);
/// The same, counting only elements of the candidate that are not finite where golden is, or another infinity.
NonFinite count_non_finite(const Tensor& golden, const Tensor& candidate);
/// False if some element is NaN or infinite; faster than counting.
bool all_finite(const Tensor& tensor);

}  // namespace ulpscope
