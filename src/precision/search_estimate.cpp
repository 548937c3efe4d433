#include "precision/search_estimate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

namespace ulpscope {
namespace {

using Clock = std::chrono::steady_clock;

/// Enough for all that is not "trying other orders", and to see what one of those trials costs.
constexpr std::int64_t kTrials = 16;
constexpr char kOtherOrders[] = "trying other orders", kWeighing[] = "weighing error against time";

std::size_t worst_sample(const Criterion& criterion, std::span<const TensorMap> exact,
                         std::span<const TensorMap> lowest) {
  std::vector<double> used;
  for (std::size_t s = 0; s < exact.size(); ++s)
    used.push_back(criterion.judge(exact.subspan(s, 1), lowest.subspan(s, 1)).used);
  return static_cast<std::size_t>(std::ranges::max_element(used) - used.begin());
}

}  // namespace

double estimate_search_seconds(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                               std::span<const TensorMap> exact, std::span<const TensorMap> lowest) {
  const std::size_t chosen = worst_sample(criterion, exact, lowest);
  SearchData one;
  one.network = data.network;
  one.weights = data.weights;
  one.samples = {data.samples[chosen]};
  if (!data.golden.empty()) one.golden = {data.golden[chosen]};
  SearchTask task = options;
  task.max_trials = options.max_trials > 0 ? std::min(options.max_trials, kTrials) : kTrials;
  std::map<std::string, double> stages;
  std::string stage;
  Clock::time_point since = Clock::now();
  const auto enter = [&](const std::string& next) {
    const auto now = Clock::now();
    stages[stage] += std::chrono::duration<double>(now - since).count();
    since = now;
    stage = next;
  };
  Journal journal;
  const Answer answer = search_precisions(one, criterion, task, journal,
                                          [&](const SearchProgress& progress) { enter(progress.stage); });
  enter("");
  double total = 0, trials = 0, fallback = 0, first = 0;
  for (const auto& [name, seconds] : stages) total += seconds;
  std::int64_t fallbacks = 0;
  for (const Trial& trial : answer.trials) {
    if (first == 0) first = trial.seconds;
    trials += trial.seconds;
    if (trial.kind != "fallback") continue;
    fallback += trial.seconds;
    ++fallbacks;
  }
  // What does not depend on samples is spent once.
  double per_sample = total - stages[kWeighing];
  if (stage == kOtherOrders || stages[kOtherOrders] > 0) {
    const double layers = answer.candidates;
    const double all = 16 + layers / 4 + 2 * std::log2(layers);
    const double most = options.max_trials > 0 ? static_cast<double>(options.max_trials - answer.evaluations) : all;
    per_sample += std::clamp(all - static_cast<double>(fallbacks), 0.0, std::max(0.0, most)) * fallback /
                  static_cast<double>(std::max<std::int64_t>(1, fallbacks));
  }
  const auto samples = static_cast<double>(data.samples.size()), held_out = static_cast<double>(data.held_out.size());
  if (getenv("DBG")) {
    for (auto& [n, s] : stages) fprintf(stderr, "%s: %.3f\n", n.c_str(), s);
    fprintf(stderr, "trials %.3f (%zd), fallback %.3f (%ld) first %.3f\n", trials, answer.trials.size(), fallback, fallbacks, first);
  }
  const double seconds = stages[kWeighing] + per_sample * samples + 2 * first * held_out;
  return options.time_limit > 0 ? std::min(seconds, options.time_limit) : seconds;
}

}  // namespace ulpscope
