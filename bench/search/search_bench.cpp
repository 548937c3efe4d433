// Which layers the strategies keep, in how many evaluations, and how many held-out samples then pass.
//   search_bench --table ...: instead, the table of strategies (docs/performance.md).
//   search_bench --sweep ...: instead, the effect of every layer by itself, measured and predicted, and what that
//   costs.
//   search_bench --anneal SECONDS [--target NAME] ...: instead, the fastest assignment by prediction against simulated
//   annealing.
//   search_bench --forward ...: instead, one forward of one sample in fp32, and the peak memory of the process.
//   search_bench [--models FOLDER] [--case TEXT] [--objective fastest|smallest|cheapest] [--margin F] [--shrink]
//   [--reasons] [--samples N] [--threads N]
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>

#include "annealing.h"
#include "cases.h"
#include "compare/json_files.h"
#include "core/parallel.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "precision/repair.h"
#include "precision/search_space.h"
#include "table.h"
#include "ulpscope/log.h"

namespace ulpscope::bench {
namespace {

struct Arguments {
  std::filesystem::path models = std::filesystem::path(ULPSCOPE_SOURCE_DIR) / "build" / "models";
  std::string only;
  Objective objective = Objective::kSmallest;
  double margin = 0.5;
  bool shrink = false, reasons = false, repair = true;
  int threads = 0, projections = PredictorOptions{}.projections;
  bool sweep = false, table = false, forward = false;
  double anneal = 0;
  std::string target = "h200";
  std::size_t samples = 0;  ///< The first of them only, and none held out; 0: all.
};

Arguments parse(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--shrink")
      result.shrink = true;
    else if (word == "--sweep")
      result.sweep = true;
    else if (word == "--table")
      result.table = true;
    else if (word == "--forward")
      result.forward = true;
    else if (word == "--reasons")
      result.reasons = true;
    else if (word == "--no-repair")
      result.repair = false;
    else if (i + 1 < argc && word == "--models")
      result.models = argv[++i];
    else if (i + 1 < argc && word == "--case")
      result.only = argv[++i];
    else if (i + 1 < argc && word == "--anneal")
      result.anneal = std::atof(argv[++i]);
    else if (i + 1 < argc && word == "--target")
      result.target = argv[++i];
    else if (i + 1 < argc && word == "--margin")
      result.margin = std::atof(argv[++i]);
    else if (i + 1 < argc && word == "--projections")
      result.projections = std::atoi(argv[++i]);
    else if (i + 1 < argc && word == "--threads")
      result.threads = std::atoi(argv[++i]);
    else if (i + 1 < argc && word == "--samples")
      result.samples = static_cast<std::size_t>(std::atoi(argv[++i]));
    else if (i + 1 < argc && word == "--objective")
      result.objective = std::strcmp(argv[i + 1], "cheapest") == 0  ? Objective::kCheapest
                         : std::strcmp(argv[i + 1], "fastest") == 0 ? Objective::kFastest
                                                                    : Objective::kSmallest,
      ++i;
    else
      throw std::runtime_error("unknown argument " + word);
  }
  return result;
}

/// Of this process so far, in MB.
double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// One forward of one sample in fp32, to compare memory with.
void run_forward(const Case& which, const Arguments& arguments) {
  const auto network = import_onnx(arguments.models / (which.model + ".onnx"), op_registry());
  const std::vector<TensorMap> samples = load_inputs(arguments.models / (which.model + ".search.json"));
  BuildOptions build;
  build.threads = arguments.threads;
  build.fusion = Fusion::kNone;
  Trials trials(network, build, std::span(samples).first(1));
  trials.run(trials.full_precision(), false);
  fmt::print("{{\"case\": \"{}\", \"peak\": {:.1f}}}\n", which.name, peak_memory());
}

void run_case(const Case& which, const Arguments& arguments) {
  const std::clock_t start = std::clock();
  Loaded loaded = load(which, arguments.models, arguments.threads);
  if (arguments.samples > 0) {
    loaded.data.samples.resize(std::min(arguments.samples, loaded.data.samples.size()));
    loaded.data.held_out.clear();
  }
  const double loading = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  loaded.options.objective = arguments.objective;
  loaded.options.margin = arguments.margin;
  loaded.options.shrink = arguments.shrink;
  loaded.options.repair = arguments.repair;
  loaded.options.build.threads = arguments.threads;
  loaded.options.predictor.projections = arguments.projections;
  Journal journal;
  std::string stage;
  // Processor time: of use on a machine that others share, with one thread.
  const std::clock_t begin = std::clock();
  const auto seconds = [&] { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC; };
  std::string stages;
  const Answer answer =
      search_precisions(loaded.data, *loaded.criterion, loaded.options, journal, [&](const SearchProgress& p) {
        if (p.stage == stage) return;
        stage = p.stage;
        stages += fmt::format(" {}@{:.2f}", stage, seconds());
      });
  fmt::print(
      "{} | {}\n  kept {} of {}, evaluations {} + {} held out, cost {:.1f} %, used {:.3g}, held out {:.3g}, {:.2f} s "
      "({:.2f} s of processor time, {:.2f} s before it to load and calibrate, {:.2f} s for held-out samples)\n "
      " {}\n",
      which.name, answer.message, answer.kept.size(), answer.candidates, answer.evaluations,
      answer.held_out_evaluations, 100 * answer.cost_share, answer.search.used,
      answer.held_out ? answer.held_out->used : 0.0, answer.seconds, seconds(), loading, answer.held_out_seconds,
      stages);
  // For speed.py: wall-clock seconds of the calibration, and of the search without its held-out samples.
  fmt::print(
      "{{\"case\": \"{}\", \"threads\": {}, \"calibration\": {:.6f}, \"search\": {:.6f}, \"held_out\": {:.6f}, "
      "\"kept\": {}, \"evaluations\": {}, \"peak\": {:.1f}}}\n",
      which.name, num_threads(), loaded.calibration_seconds, answer.seconds - answer.held_out_seconds,
      answer.held_out_seconds, answer.kept.size(), answer.evaluations, peak_memory());
  for (const Trial& trial : answer.trials)
    fmt::print("    {} {}: {:.4g} {:.3f} s\n", name_of(trial.kind), trial.raised.size(), trial.judgement.used,
               trial.seconds);
  for (const Repair& repair : answer.repairs) fmt::print("    repair {}\n", repair.text);
  if (arguments.reasons)
    for (const auto& row : answer.sensitivities) fmt::print("    sensitivity {} {:.4g}\n", row.name, row.effect);
  if (arguments.reasons)
    for (const KeptLayer& kept : answer.kept)
      fmt::print("    {} ({:.3g}): {}\n", kept.name, kept.effect, kept.reason.text);
}

/// Average ranks for ties.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i;
    while (j < order.size() && values[order[j]] == values[order[i]]) ++j;
    for (std::size_t k = i; k < j; ++k) result[order[k]] = (static_cast<double>(i) + static_cast<double>(j) - 1) / 2;
    i = j;
  }
  return result;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = (static_cast<double>(x.size()) - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xy / std::sqrt(xx * yy);
}

/// Each layer low by itself, the others in fp32: predicted and measured.
void sweep_case(const Case& which, const Arguments& arguments) {
  Loaded loaded = load(which, arguments.models, arguments.threads);
  loaded.options.build.threads = arguments.threads;
  loaded.options.predictor.projections = arguments.projections;
  auto space = std::make_unique<SearchSpace>(loaded.data.network, loaded.options, loaded.data.samples);
  auto repaired = std::make_shared<Network>(*loaded.data.network);
  std::map<std::string, float> scales;
  apply_repairs(*repaired, scales, find_clamps(*space->trials().specialization(), space->low()));
  space = std::make_unique<SearchSpace>(repaired, loaded.options, loaded.data.samples);
  Trials& trials = space->trials();
  const Assignment exact = trials.full_precision();
  const auto golden = trials.run(exact);
  const auto effects =
      predict_effects(trials, space->low(), space->candidates(), *loaded.criterion, golden, loaded.options.predictor);
  const auto seconds = [](auto&& work) {
    const std::clock_t begin = std::clock();
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  // One forward of all samples without anything to share, as the unit.
  double forward = 1e30;
  for (int i = 0; i < 5; ++i) {
    trials.set_memory_limit(0);
    forward = std::min(forward, seconds([&] { trials.run(exact, false); }));
  }
  trials.set_memory_limit(loaded.options.memory_limit);
  // What the trials below share: no candidate is low; the others are as they are in every trial.
  trials.run(space->assignment(space->highest()));
  std::vector<double> predicted, measured;
  double total = 0;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    Levels levels = space->highest();
    levels[i] = 0;
    const Assignment one = space->assignment(levels);
    std::vector<TensorMap> outputs;
    total += seconds([&] { outputs = trials.run(one, false); });
    measured.push_back(loaded.criterion->judge(golden, outputs).used);
    predicted.push_back(effects[i].effect);
    if (arguments.reasons)
      fmt::print("    {} predicted {:.4g} measured {:.4g}\n", trials.network().layer(effects[i].layer).name,
                 predicted_use(predicted.back(), loaded.criterion->sensitivity()), measured.back());
  }
  fmt::print("{} | {} layers | rank correlation {:.3f} | a layer costs {:.2f} forwards\n", which.name, effects.size(),
             rank_correlation(predicted, measured), total / static_cast<double>(effects.size()) / forward);
}

}  // namespace
}  // namespace ulpscope::bench

int main(int argc, char** argv) {
  using namespace ulpscope;
  using namespace ulpscope::bench;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
  const Arguments arguments = parse(argc, argv);
  for (const Case& which : all_cases())
    if (which.name.find(arguments.only) != std::string::npos && !(which.large && arguments.only.empty())) {
      if (arguments.anneal > 0)
        anneal_case(which, {arguments.models, arguments.threads, arguments.anneal, arguments.margin, arguments.target});
      else if (arguments.table)
        print_table(which, compare_strategies(which, arguments.models, arguments.threads, arguments.margin));
      else if (arguments.sweep)
        sweep_case(which, arguments);
      else if (arguments.forward)
        run_forward(which, arguments);
      else
        run_case(which, arguments);
    }
  return 0;
}
