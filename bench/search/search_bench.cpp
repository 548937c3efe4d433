// Which layers the strategies keep, in how many evaluations, and how many held-out samples then pass.
//   search_bench [--models FOLDER] [--case TEXT] [--objective smallest|cheapest] [--margin F] [--shrink] [--reasons]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "cases.h"
#include "core/parallel.h"
#include "precision/search_space.h"
#include "ulpscope/log.h"

namespace ulpscope::bench {
namespace {

struct Arguments {
  std::filesystem::path models = std::filesystem::path(ULPSCOPE_SOURCE_DIR) / "build" / "models";
  std::string only;
  Objective objective = Objective::kSmallest;
  double margin = 0.5;
  bool shrink = false, reasons = false, repair = true;
  int threads = 0;
};

Arguments parse(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--shrink")
      result.shrink = true;
    else if (word == "--reasons")
      result.reasons = true;
    else if (word == "--no-repair")
      result.repair = false;
    else if (i + 1 < argc && word == "--models")
      result.models = argv[++i];
    else if (i + 1 < argc && word == "--case")
      result.only = argv[++i];
    else if (i + 1 < argc && word == "--margin")
      result.margin = std::atof(argv[++i]);
    else if (i + 1 < argc && word == "--threads")
      result.threads = std::atoi(argv[++i]);
    else if (i + 1 < argc && word == "--objective")
      result.objective = std::strcmp(argv[++i], "cheapest") == 0 ? Objective::kCheapest : Objective::kSmallest;
    else
      throw std::runtime_error("unknown argument " + word);
  }
  return result;
}

void run_case(const Case& which, const Arguments& arguments) {
  Loaded loaded = load(which, arguments.models);
  loaded.options.objective = arguments.objective;
  loaded.options.margin = arguments.margin;
  loaded.options.shrink = arguments.shrink;
  loaded.options.repair = arguments.repair;
  loaded.options.build.threads = arguments.threads;
  Journal journal;
  std::string stage;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::string stages;
  const Answer answer =
      search_precisions(loaded.data, *loaded.criterion, loaded.options, journal, [&](const SearchProgress& p) {
        if (p.stage == stage) return;
        stage = p.stage;
        stages += fmt::format(" {}@{:.2f}", stage, seconds());
      });
  fmt::print(
      "{} | {}\n  kept {} of {}, evaluations {} + {} held out, cost {:.1f} %, used {:.3g}, held out {:.3g}, {:.2f} s\n "
      " {}\n",
      which.name, answer.message, answer.kept.size(), answer.candidates, answer.evaluations,
      answer.held_out_evaluations, 100 * answer.cost_share, answer.search.used,
      answer.held_out ? answer.held_out->used : 0.0, answer.seconds, stages);
  for (const Trial& trial : answer.trials)
    fmt::print("    {} {}: {:.4g} {:.3f} s\n", trial.kind, trial.raised.size(), trial.judgement.used, trial.seconds);
  for (const Repair& repair : answer.repairs) fmt::print("    repair {}\n", repair.text);
  if (arguments.reasons)
    for (const auto& row : answer.sensitivities) fmt::print("    sensitivity {} {:.4g}\n", row.name, row.effect);
  if (arguments.reasons)
    for (const KeptLayer& kept : answer.kept)
      fmt::print("    {} ({:.3g}): {}\n", kept.name, kept.effect, kept.reason.text);
}

}  // namespace
}  // namespace ulpscope::bench

int main(int argc, char** argv) {
  using namespace ulpscope;
  using namespace ulpscope::bench;
  const Arguments arguments = parse(argc, argv);
  for (const Case& which : all_cases())
    if (which.name.find(arguments.only) != std::string::npos) run_case(which, arguments);
  return 0;
}
