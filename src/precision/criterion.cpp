#include "precision/criterion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/counted.h"
#include "core/messages.h"
#include "graph/name_match.h"
#include "precision/sample_pairs.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// Criteria that judge one output of one sample at a time.
class PairwiseCriterion : public Criterion {
 public:
  Judgement judge(std::span<const TensorMap> golden, std::span<const TensorMap> candidate) const final {
    Judgement result;
    visit_pairs(*this, golden, candidate, [&](const SamplePair& pair) {
      const bool comparable = pair.golden.shape() == pair.candidate.shape();
      const auto [used, value] =
          comparable ? judge_pair(pair.output, pair.golden, pair.candidate) : Use{kUnbounded, kUnbounded};
      if (note({pair.output, used, value, pair.sample}, result) && std::isinf(used))
        result.problem = why_infinite(pair);
    });
    return result;
  }

 protected:
  struct Use {
    double used, value;
  };
  virtual Use judge_pair(const std::string& output, const Tensor& golden, const Tensor& candidate) const = 0;

 private:
  static std::string why_infinite(const SamplePair& pair) {
    if (std::string problem = problem_of(pair); !problem.empty()) return problem;
    const NonFinite own = count_non_finite(pair.golden);
    return fmt::format("output '{}', sample {}: ", pair.output, pair.sample) +
           (own.nan + own.inf > 0 ? fmt::format("the golden output itself has {} NaN and {} Inf", own.nan, own.inf)
                                  : "an error where none is allowed");
  }
};

class ToleranceCriterion final : public PairwiseCriterion {
 public:
  explicit ToleranceCriterion(CompareOptions options) : options_(std::move(options)) {
    check_error_stats(options_.error_stat);
    const auto check = [](const PerName<double>& values, const char* option, double high, const char* expected) {
      for (const auto& [name, value] : values.entries())
        if (!(value >= 0 && value <= high))
          throw invalid_argument("[criterion] {}: expected {}, got {}{}", option, expected,
                                 name.empty() ? "" : name + ":", value);
    };
    check(options_.atol, "--atol", kUnbounded, "0 or more");
    check(options_.rtol, "--rtol", kUnbounded, "0 or more");
    check(options_.error_quantile, "--error-quantile", 1, "a number from 0 to 1");
  }

  std::string description() const override {
    std::string text;
    for (const auto& [name, stat] : options_.error_stat.entries())
      text += fmt::format("{}{}{} error", text.empty() ? "" : ", ", name.empty() ? "" : name + ":", stat);
    return fmt::format("{} within atol {} or rtol {}", text.empty() ? "elemwise error" : text,
                       thresholds_text(options_.atol), thresholds_text(options_.rtol));
  }
  Sensitivity sensitivity() const override { return Sensitivity::kElementwise; }
  double atol(const std::string& output) const override { return options_.atol.get(output, 1e-5); }
  double rtol(const std::string& output) const override { return options_.rtol.get(output, 1e-5); }
  double threshold(const std::string&) const override { return 1; }
  bool judges(const std::string&) const override { return true; }

 private:
  Use judge_pair(const std::string& output, const Tensor& golden, const Tensor& candidate) const override {
    Tolerance tolerance{atol(output), rtol(output), options_.error_stat.get(output, "elemwise"),
                        options_.error_quantile.get(output, 0.99), options_.infinities_compare_equal};
    const ToleranceUse use = share_of_tolerance(golden, candidate, tolerance);
    if (tolerance.statistic != "elemwise") {
      const NonFinite foreign = count_non_finite(golden, candidate);
      if (foreign.nan + foreign.inf > 0) return {kUnbounded, use.absolute_error};
    }
    return {use.used, use.absolute_error};
  }

  CompareOptions options_;
};

class MetricCriterion final : public PairwiseCriterion {
 public:
  MetricCriterion(MetricKind kind, PerName<double> thresholds, const MetricParameters& parameters,
                  bool infinities_equal)
      : kind_(kind), thresholds_(std::move(thresholds)), parameters_(parameters), infinities_equal_(infinities_equal) {
    if (thresholds_.empty())
      throw invalid_argument("[criterion] {}: expected a threshold, got none; try --threshold X", name_of(kind_));
    for (const auto& [name, value] : thresholds_.entries()) check_threshold(name, value);
    if (parameters_.k < 1) throw invalid_argument("[criterion] top-k: expected k of 1 or more, got {}", parameters_.k);
    if (!std::isfinite(parameters_.iou_level))
      throw invalid_argument("[criterion] iou: expected a finite level, got {}", parameters_.iou_level);
  }

  std::string description() const override {
    std::string name(name_of(kind_));
    if (kind_ == MetricKind::kTopK) name = fmt::format("top-{}", parameters_.k);
    if (kind_ == MetricKind::kIou) name += fmt::format(" (above {:g})", parameters_.iou_level);
    return fmt::format("{} {} {}", name, higher_is_better(kind_) ? ">=" : "<=", thresholds_text(thresholds_));
  }
  Sensitivity sensitivity() const override {
    if (kind_ == MetricKind::kRelativeMax) return Sensitivity::kRelativeMax;
    if (kind_ == MetricKind::kOneMinusCos) return Sensitivity::kOneMinusCos;
    if (kind_ == MetricKind::kKl) return Sensitivity::kDivergence;
    return Sensitivity::kRelativeL2;
  }
  double threshold(const std::string& output) const override {
    const double* found = thresholds_.find(output);
    return found == nullptr ? kUnbounded : threshold_as_loss(kind_, *found);
  }
  bool judges(const std::string& output) const override { return thresholds_.find(output) != nullptr; }

 private:
  void check_threshold(const std::string& name, double value) const {
    const bool decibels = kind_ == MetricKind::kPsnr || kind_ == MetricKind::kSnr;
    const bool share = higher_is_better(kind_) && !decibels;
    const bool fits = share ? value > 0 && value <= 1 : std::isfinite(value) && (decibels || value >= 0);
    if (fits && !(kind_ == MetricKind::kOneMinusCos && value > 2)) return;
    throw invalid_argument("[criterion] threshold of {}: expected {}, got {}{}", name_of(kind_),
                           share                               ? "a share above 0, at most 1"
                           : decibels                          ? "decibels"
                           : kind_ == MetricKind::kOneMinusCos ? "a number from 0 to 2"
                                                               : "a finite number, 0 or more",
                           name.empty() ? "" : name + ":", value);
  }

  Use judge_pair(const std::string& output, const Tensor& golden, const Tensor& candidate) const override {
    const NonFinite foreign = count_non_finite(golden, candidate);
    double value = std::numeric_limits<double>::quiet_NaN();
    if (foreign.nan + foreign.inf == 0 && (infinities_equal_ || all_finite(golden))) {
      try {
        value = compute_metric(kind_, golden, candidate, parameters_);
      } catch (const Error& error) {
        throw error_of(error.code(), "{} (output '{}')", error.what(), output);
      }
    }
    return {share_of_threshold(kind_, value, *thresholds_.find(output)), value};
  }

  MetricKind kind_;
  PerName<double> thresholds_;
  MetricParameters parameters_;
  bool infinities_equal_;
};

std::string place_text(const std::string& output, int sample) {
  return fmt::format("output '{}', sample {}: ", output, sample);
}

bool fits(const Shape& shape, const Shape& expected) {
  return std::ranges::equal(shape, expected,
                            [](std::int64_t is, std::int64_t wanted) { return wanted < 0 || is == wanted; });
}

}  // namespace

std::string thresholds_text(const PerName<double>& thresholds) {
  std::string text;
  for (const auto& [name, value] : thresholds.entries())
    text += fmt::format("{}{}{:g}", text.empty() ? "" : " ", name.empty() ? "" : name + ":", value);
  return text;
}

bool note(const Judgement::OutputError& one, Judgement& judgement) {
  const auto entry = std::ranges::find(judgement.outputs, one.output, &Judgement::OutputError::output);
  if (entry == judgement.outputs.end())
    judgement.outputs.push_back(one);
  else if (one.used > entry->used)
    *entry = one;
  if (judgement.worst_sample >= 0 && !(one.used > judgement.used)) return false;
  judgement.used = one.used;
  judgement.value = one.value;
  judgement.worst_output = one.output;
  judgement.worst_sample = one.sample;
  return true;
}

std::unique_ptr<Criterion> make_tolerance_criterion(const CompareOptions& options) {
  return std::make_unique<ToleranceCriterion>(options);
}

std::unique_ptr<Criterion> make_metric_criterion(MetricKind kind, PerName<double> thresholds,
                                                 const MetricParameters& parameters, bool infinities_equal) {
  return std::make_unique<MetricCriterion>(kind, std::move(thresholds), parameters, infinities_equal);
}

Judgement combine_judgements(std::span<const Judgement> each) {
  Judgement result;
  for (std::size_t s = 0; s < each.size(); ++s) {
    const int sample = static_cast<int>(s);
    for (Judgement::OutputError one : each[s].outputs) {
      one.sample = sample;
      // Where it is infinite, it is the worst of its sample, too.
      if (!note(one, result) || !std::isinf(one.used)) continue;
      result.problem = each[s].problem;
      const std::string place = place_text(one.output, 0);
      if (result.problem.starts_with(place))
        result.problem = place_text(one.output, sample) + result.problem.substr(place.size());
    }
  }
  return result;
}

void check_golden(std::span<const TensorMap> golden, std::span<const ExpectedOutput> expected,
                  const Criterion& criterion, bool infinities_equal, std::int64_t samples) {
  const auto refuse = [](const std::string& text) { throw invalid_argument("[golden] " + text); };
  if (golden.empty()) refuse("expected outputs of at least one sample, got none");
  if (samples >= 0 && static_cast<std::size_t>(samples) != golden.size())
    refuse(
        fmt::format("expected outputs of {} samples, as there are inputs, got {}; try golden outputs that were made "
                    "from these inputs",
                    samples, golden.size()));
  for (std::size_t sample = 0; sample < golden.size(); ++sample) {
    for (const ExpectedOutput& output : expected) {
      if (!criterion.judges(output.name)) continue;
      const Tensor* tensor = find_tensor(golden[sample], output.name);
      if (tensor == nullptr)
        refuse(
            fmt::format("sample {}: expected an output '{}', got {}; try golden outputs of this model with all "
                        "outputs that are judged, or a --threshold by name for those that are there",
                        sample, output.name, output_list(golden[sample])));
      const std::string where = fmt::format("output '{}', sample {}", output.name, sample);
      if (!fits(tensor->shape(), output.shape))
        refuse(fmt::format("{}: expected shape {}, got {}; try golden outputs of this model", where,
                           to_string(output.shape), to_string(tensor->shape())));
      const NonFinite found = count_non_finite(*tensor);
      if (found.nan > 0)
        refuse(
            fmt::format("{}: expected numbers, got {} NaN in {} elements: nothing can be judged against them; try "
                        "other inputs, or look for the first layer that gives NaN",
                        where, found.nan, tensor->size()));
      if (found.inf > 0 && !infinities_equal)
        refuse(
            fmt::format("{}: expected finite numbers, got {} Inf in {} elements; try --infinities-compare-equal, "
                        "with which the same infinity is no error",
                        where, found.inf, tensor->size()));
    }
  }
  check_has_elements(golden, criterion);
}

bool has_elements(std::span<const TensorMap> golden, const Criterion* criterion) {
  return std::ranges::any_of(golden, [&](const TensorMap& sample) {
    return std::ranges::any_of(sample, [&](const NamedTensor& output) {
      return output.tensor.size() > 0 && (criterion == nullptr || criterion->judges(output.name));
    });
  });
}

void check_has_elements(std::span<const TensorMap> golden, const Criterion& criterion, std::string_view what) {
  if (has_elements(golden, &criterion)) return;
  throw invalid_argument(
      "[golden] expected outputs with elements, got none in the {}{}: nothing can be judged against them; "
      "try inputs without dimensions of 0",
      counted(std::ssize(golden), "sample"), what);
}

void check_golden_of(std::span<const TensorMap> golden, const Criterion& criterion, bool infinities_equal,
                     std::int64_t samples) {
  std::vector<ExpectedOutput> expected;
  if (!golden.empty())
    for (const NamedTensor& output : golden.front())
      expected.push_back({output.name, Shape(output.tensor.shape().size(), -1)});
  check_golden(golden, expected, criterion, infinities_equal, samples);
}

void check_output_name(const std::string& name, std::span<const std::string> outputs, std::string_view option) {
  if (std::ranges::find(outputs, name) != outputs.end()) return;
  throw invalid_argument("[options] {}: expected an output of the network, got '{}'{}; outputs are: {}", option, name,
                         did_you_mean(name, outputs), fmt::join(outputs, ", "));
}

}  // namespace ulpscope
