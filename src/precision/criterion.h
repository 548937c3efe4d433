// When outputs are good enough: tolerances and metrics, as one number that says how much of the tolerance is used.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compare/comparison.h"
#include "compare/tensor_map.h"

namespace ulpscope {

/// The verdict on the outputs of all samples.
struct Judgement {
  /// error / tolerance of the worst output and sample; infinity where something is not finite that should be. Passes at
  /// margin F if `used` <= F. For a higher-is-better metric the loss: 1 - x for top-k and iou, the ratio of amplitudes
  /// for psnr and snr (10^((threshold - x) / 20)).
  double used = 0;
  /// The value in the metric's own unit, at the worst output and sample (rel-l2, dB, ...).
  double value = 0;
  std::string worst_output;
  int worst_sample = -1;
  /// Per output, the worst sample: name, used, value.
  struct OutputError {
    std::string output;
    double used = 0, value = 0;
    int sample = -1;
  };
  std::vector<OutputError> outputs;
  bool passed(double margin = 1.0) const noexcept { return used <= margin; }
};

/// How one golden output value's error counts: what random projections of the outputs are weighted with
/// (precision/predictor.h).
enum class Sensitivity : std::uint8_t {
  kRelativeL2,   ///< |d|_2 / |y|_2
  kRelativeMax,  ///< max |d| / max |y|
  kOneMinusCos,  ///< the part of d that is orthogonal to y, relative to |y|, squared, halved
  kElementwise,  ///< |d_i| / (atol or rtol |y_i|, whichever is larger)
};

class Criterion {
 public:
  virtual ~Criterion() = default;
  /// "rel-l2 <= 0.01": for logs, the journal and the answer.
  virtual std::string description() const = 0;
  /// `golden` and `candidate`: per sample, outputs of equal names and shapes. Throws Error naming the output and sample
  /// that do not fit.
  virtual Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const = 0;
  virtual Sensitivity sensitivity() const = 0;
  /// The tolerances of an output for kElementwise; the threshold for the others, as a loss.
  virtual double atol(const std::string& output) const = 0;
  virtual double rtol(const std::string& output) const = 0;
  virtual double threshold(const std::string& output) const = 0;
  /// False for outputs that no threshold names.
  virtual bool judges(const std::string& output) const = 0;
};

}  // namespace ulpscope
