#include "precision/search_estimate.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "precision/search_stage.h"
#include "precision/segment_search.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

using Clock = std::chrono::steady_clock;

/// Enough for all that comes before other orders are tried, and to see what one of those trials costs.
constexpr std::int64_t kTrials = 32;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Seconds by stage of a search.
class Stages {
 public:
  void enter(const std::string& next) {
    seconds_[stage_] += seconds_since(since_);
    since_ = Clock::now();
    stage_ = next;
  }
  double operator[](Stage stage) const {
    const auto found = seconds_.find(text_of(stage));
    return found == seconds_.end() ? 0 : found->second;
  }
  /// Of those that take the same for any number of samples.
  double fixed() const { return (*this)[Stage::kWeighing] + (*this)[Stage::kPolishing] + (*this)[Stage::kOtherSets]; }
  double total() const {
    double sum = 0;
    for (const auto& [stage, seconds] : seconds_) sum += seconds;
    return sum;
  }

 private:
  std::map<std::string, double, std::less<>> seconds_;
  std::string stage_;
  Clock::time_point since_ = Clock::now();
};

/// The sample that the lowest precisions harm most, and the one that they harm least: the margin comes from how far
/// apart samples are.
std::vector<std::size_t> telling_samples(const Criterion& criterion, std::span<const TensorMap> exact,
                                         std::span<const TensorMap> lowest, bool margin_is_given) {
  std::vector<double> used;
  for (std::size_t s = 0; s < exact.size(); ++s)
    used.push_back(criterion.judge(exact.subspan(s, 1), lowest.subspan(s, 1)).used);
  const auto most = static_cast<std::size_t>(std::ranges::max_element(used) - used.begin());
  const auto least = static_cast<std::size_t>(std::ranges::min_element(used) - used.begin());
  return margin_is_given || most == least ? std::vector{most} : std::vector{most, least};
}

/// Of the trials of other orders that were not run; they were about to begin, or have begun.
double seconds_of_the_rest(const Answer& answer, std::int64_t limit) {
  double spent = 0, count = 0;
  for (const Trial& trial : answer.trials)
    if (trial.kind == TrialKind::kFallback) {
      spent += trial.seconds;
      ++count;
    }
  if (count == 0) return 0;
  // The bisections ahead of it hardly ever go beyond one trial each.
  double rest =
      std::max(0.0, static_cast<double>(segment_budget(static_cast<std::size_t>(answer.candidates))) + 2 - count);
  if (limit > 0) rest = std::min(rest, static_cast<double>(limit - answer.evaluations));
  return rest * spent / count;
}

}  // namespace

SearchEstimate estimate_search(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                               Trials& trials, const Assignment& low) {
  SearchEstimate estimate;
  const auto start = Clock::now();
  const std::vector<TensorMap> exact = trials.run(trials.full_precision(), /*keep=*/false);
  estimate.forward_seconds = seconds_since(start);
  const std::vector<TensorMap> lowest = trials.run(low, /*keep=*/false);
  const double first_runs = seconds_since(start);
  const auto again = Clock::now();
  trials.run(trials.full_precision(), 0, 1, /*keep=*/false);
  trials.run(low, 0, 1, /*keep=*/false);
  const double pair_again = seconds_since(again);

  SearchData few;
  few.network = data.network;
  few.weights = trials.weights();  // What preparing them takes is in `first_runs`.
  for (const std::size_t s :
       telling_samples(criterion, data.golden.empty() ? exact : data.golden, lowest, options.margin > 0)) {
    few.samples.push_back(data.samples[s]);
    if (!data.golden.empty()) few.golden.push_back(data.golden[s]);
  }
  SearchTask task = options;
  task.max_trials = options.max_trials > 0 ? std::min(options.max_trials, kTrials) : kTrials;
  Journal journal;
  Stages stages;
  const LogFloor quiet(LogLevel::kError);
  const Answer answer = search_precisions(few, criterion, task, journal,
                                          [&](const SearchProgress& progress) { stages.enter(progress.stage); });
  stages.enter("");

  const auto tried = static_cast<double>(few.samples.size()), samples = static_cast<double>(data.samples.size()),
             held_out = static_cast<double>(data.held_out.size());
  // Per sample: a run in fp32 and one in the lowest precisions. Either figure may hold weights that were prepared anew.
  const double first_trial = answer.trials.empty() ? 0 : answer.trials.front().seconds;
  const double pair = std::min(pair_again, (stages[Stage::kGolden] + first_trial) / tried);
  // Regions take three pairs of runs per sample; the rest is equations, and weights that are prepared again.
  const double fixed = stages.fixed() + std::max(0.0, stages[Stage::kRegions] - 3 * tried * pair);
  double each = (stages.total() - fixed) / tried;
  if (answer.evaluations >= kTrials) each += seconds_of_the_rest(answer, options.max_trials) / tried;
  estimate.search_seconds = fixed + std::max(0.0, first_runs - samples * pair) + samples * each + held_out * pair;
  if (options.time_limit > 0) estimate.search_seconds = std::min(estimate.search_seconds, options.time_limit);
  return estimate;
}

}  // namespace ulpscope
