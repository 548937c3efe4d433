// When outputs are good enough: tolerances and metrics, as one number that says how much of the tolerance is used.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "compare/comparison.h"
#include "compare/metrics.h"
#include "compare/tensor_map.h"
#include "runners/script_host.h"
#include "ulpscope/answer.h"
#include "ulpscope/criterion.h"

namespace ulpscope {

/// How one golden output value's error counts: what random projections of the outputs are weighted with
/// (precision/predictor.h).
enum class Sensitivity : std::uint8_t {
  kRelativeL2,   ///< |d|_2 / |y|_2
  kRelativeMax,  ///< max |d| / max |y|
  kOneMinusCos,  ///< the part of d that is orthogonal to y, relative to |y|, squared, halved
  kDivergence,   ///< KL: half of <gradient of the log of a probability, d> squared, the mean over probabilities
  kElementwise,  ///< |d_i| / (atol or rtol |y_i|, whichever is larger)
};

/// Judges; may be used from several threads at a time. Numbers are the same for every number of threads.
class Criterion {
 public:
  virtual ~Criterion() = default;
  /// "rel-l2 <= 0.01": for logs, the journal and the answer.
  virtual std::string description() const = 0;
  /// `golden` and `candidate`: per sample, outputs of equal names and shapes. Throws Error naming the output and sample
  /// that do not fit. Further outputs of `candidate` are ignored. A NaN or an infinity in the candidate where the
  /// golden output is finite makes `used` infinite (with tolerances on elements: unless a tolerance is infinite, too).
  virtual Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const = 0;
  virtual Sensitivity sensitivity() const = 0;
  /// The tolerances of an output for kElementwise; the threshold for the others, as a loss.
  virtual double atol(const std::string&) const { return 0; }
  virtual double rtol(const std::string&) const { return 0; }
  virtual double threshold(const std::string& output) const = 0;
  /// False for outputs that no threshold names.
  virtual bool judges(const std::string& output) const = 0;
};

/// "0.01" or "0.01 y:0.02", as thresholds are typed.
std::string thresholds_text(const PerName<double>& thresholds);

/// Notes what an output of a sample uses. True where no other used as much before.
bool note(const Judgement::OutputError& one, Judgement& judgement);

/// What judge() gives for all samples, from what it gave for each by itself: of the built-in criteria. `each` is not
/// empty.
Judgement combine_judgements(std::span<const Judgement> each);

/// Polygraphy's tolerances: passes exactly where `run --compare simple` does, with atol, rtol, error_stat,
/// error_quantile and infinities_compare_equal of the options (compare/metrics.h, share_of_tolerance). `value` is the
/// statistic of the absolute error. With another statistic than elemwise an infinite candidate fails even where, say,
/// the median does not see it. Throws Error(kInvalidArgument) for tolerances that are negative or NaN, quantiles
/// outside of [0, 1], unknown statistics.
std::unique_ptr<Criterion> make_tolerance_criterion(const CompareOptions& options);

/// A metric of compare/metrics.h against a threshold per output; the worst output and sample decide. Thresholds without
/// a default (empty name) judge the outputs that they name alone. For top-k with one row per sample that means: all
/// rows agree; shares over a data set are for batches, or for a script. Throws Error(kInvalidArgument) for thresholds
/// that no value of the metric can meet or miss. `infinities_equal`: golden infinities are allowed, and met by the same
/// infinity.
std::unique_ptr<Criterion> make_metric_criterion(MetricKind kind, PerName<double> thresholds,
                                                 const MetricParameters& parameters = {},
                                                 bool infinities_equal = false);

/// A user's function `metric(golden, candidate)` over all samples at once: two lists with a dict of name to ndarray per
/// sample. It returns a float, or a dict of output name to float for thresholds per output; lower is better, unless the
/// function has an attribute `higher_is_better = True`. `used` is value / threshold, or (best - value) / (best -
/// threshold) where higher is better, best = metric(golden, golden), called once per golden set; not below 0. Without
/// room (a threshold of 0 or less, or best <= threshold) it is 0 or infinity. worst_sample is -1.
/// Golden outputs are sent to the worker once and kept there; they must not change while the criterion lives, nor the
/// bytes of their tensors. `host` must outlive the criterion. judge() throws Error(kScript), naming the script, when it
/// raises, exits, crashes, exceeds WorkerOptions::call_limit, or returns NaN or something else than numbers.
std::unique_ptr<Criterion> make_script_criterion(ScriptHost& host, ScriptName script, PerName<double> thresholds);

/// The same for a function of the calling program, sample by sample: the worst counts. judge() throws Error(kScript)
/// for NaN, and for an output with a threshold but without a value.
std::unique_ptr<Criterion> make_function_criterion(MetricFunction function, PerName<double> thresholds);

/// An output that golden results must have.
struct ExpectedOutput {
  std::string name;
  Shape shape;  ///< -1: any.
};

/// Refuses golden results that nothing can be judged against: for tools, once, before they search. Looks at the outputs
/// that the criterion judges. Throws Error(kInvalidArgument) naming output, sample, what was expected and what is
/// there: no samples or not `samples` (-1: any number), a missing output, another shape, no element in all of them,
/// NaN, and infinities unless `infinities_equal`.
void check_golden(std::span<const TensorMap> golden, std::span<const ExpectedOutput> expected,
                  const Criterion& criterion, bool infinities_equal, std::int64_t samples = -1);

/// Whether an output that the criterion judges (null: any) has an element in any sample. Without one, everything
/// passes.
bool has_elements(std::span<const TensorMap> golden, const Criterion* criterion = nullptr);

/// Refuses golden results without elements, as check_golden does. `what`: ends "no sample".
void check_has_elements(std::span<const TensorMap> golden, const Criterion& criterion, std::string_view what = "");

/// The same for golden results whose outputs may have any shape of their rank.
void check_golden_of(std::span<const TensorMap> golden, const Criterion& criterion, bool infinities_equal,
                     std::int64_t samples = -1);

/// Throws Error(kInvalidArgument) with near matches unless the name is an output. `option` starts the message
/// ("--threshold").
void check_output_name(const std::string& name, std::span<const std::string> outputs, std::string_view option);

/// The same for every name but the empty one.
template <typename T>
void check_output_names(const PerName<T>& values, std::span<const std::string> outputs, std::string_view option) {
  for (const auto& entry : values.entries())
    if (!entry.first.empty()) check_output_name(entry.first, outputs, option);
}

}  // namespace ulpscope
