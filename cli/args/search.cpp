#include "args/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/messages.h"
#include "core/text.h"
#include "graph/layer_form.h"
#include "precision/objective.h"

namespace ulpscope::cli {
namespace {

std::vector<std::string> rungs() {
  std::vector<std::string> names;
  for (const LayerForm& form : layer_forms())
    if (is_rung(form)) names.emplace_back(form.request());
  return names;
}

std::string objective_help() {
  std::string text;
  for (const ObjectiveRule& rule : objective_rules())
    text += fmt::format("{}{}: {}", rule.name, rule.objective == Objective::kFastest ? " (default)" : "", rule.help) +
            (&rule == &objective_rules().back() ? ". " : "; ");
  return text + "The answer holds the best of each that was proven";
}

}  // namespace

void SearchArgs::declare(OptionTable& table, TrtConfigArgs& config) {
  table.section("Search", "finding the layers that need more precision.");
  table.ours()
      .list({"-p", "--precision"}, ladder, "TYPE",
            "What layers may be raised to, where --fp16, --bf16 or --int8 is too coarse: float32 (default), tf32, "
            "float16, bfloat16, also several. `--int8 --precision float16 float32` tries float16 for the layers that "
            "int8 does not suit, and enables it. tf32 is for products: other layers that are raised to it have float32")
      .choose(rungs());
  table.ours()
      .list({"--hold-out"}, hold_out, "FILE",
            "Inputs (JSON, .npz, .npy) that the answer is checked with, at the whole tolerance, but not searched on: "
            "half of them while it is looked for, half in the end. Default: every fourth sample is kept back for this, "
            "if there are four or more")
      .exclude("--no-hold-out");
  table.ours().flag({"--no-hold-out"}, no_hold_out, "Search on all samples; nothing checks the answer then");
  table.ours().value({"--objective"}, objective, "NAME", objective_help()).choose(objective_names());
  table.ours().value({"--bits"}, bits, "N",
                     "With --weights-only and formats: the least error with at most N bits per weight (4.5), codes, "
                     "scales and zero points of all candidates together. Each group of products (Q, K and V; gate and "
                     "up) takes one of the formats; those of --keep are left out. A metric needs no --threshold then; "
                     "with one, the answer has to meet it, too");
  table.ours().value({"--margin"}, margin, "F",
                     "Search at F times the tolerance, so that the answer holds on other data; 1 is the tolerance "
                     "itself. Default: chosen from the data (0.03 to 0.5): smaller when errors vary more between "
                     "samples");
  table.ours().flag(
      {"--shrink"}, shrink,
      "Take single layers out of the set that was found, as far as it still passes; the objective is then "
      "smallest, or cheapest");
  table.ours().list(
      {"--keep"}, keep, "LAYER",
      "Layers that stay in the highest precision: names of layers or ONNX nodes, patterns (*attention*), operator "
      "types (Softmax)");
  table.ours().list({"--lower"}, lower, "LAYER", "Layers that stay in the lowest precision; named in the same way");
  table.ours().flag({"--no-repair"}, no_repair,
                    "Leave constants, regions and channels beyond the range of float16 or int8 as they are");
  table.ours().value({"--max-trials"}, max_trials, "N", "Evaluate the samples of the search at most N times");
  table.ours().value({"--time-limit"}, time_limit, "TIME",
                     "End after this time (30s, 2m, 1h; a number is in seconds) with the best that was found");
  config.declare_memory_limit(table);
  table.ours().flag(
      {"--dry-run"}, dry_run,
      "Say what would be searched and how long that takes, by its beginning on two samples; write no file");

  table.ours().value({"--ray"}, ray, "ADDRESS",
                     "Run samples and trials on a Ray cluster (`pip install ulpscope[ray]`): auto, the one that this "
                     "machine belongs to; HOST:PORT; or local, one of this machine alone. The answer is the same");
  table.ours().value({"--ray-workers"}, ray_workers, "N",
                     "Processes of the cluster that work, at most; each holds the weights once (default: one per core "
                     "and sample)");
  declare_answer(table);
}

void SearchArgs::declare_answer(OptionTable& table) {
  table.section("Answer", "what is kept of the search.");
  table.ours().value(
      {"--save-answer"}, answer, "FILE",
      "Write the answer (JSON) to this file (default: MODEL.fp16.answer.json, with the precisions that are enabled, in "
      "the working directory). Never overwrites a successful answer with a failed one or one for another model; writes "
      "another file beside it instead");
  table.ours().flag({"--force"}, force, "Overwrite even a successful answer");
  table.ours().value({"--save-layer-precisions"}, layer_precisions_file, "FILE",
                     "Write the layers and their precisions as words for --layer-precisions, one per line");
  table.ours()
      .value({"--journal"}, journal, "FILE",
             "Write a line of JSON per finished trial to this file (default: beside the answer, .journal.jsonl)")
      .exclude("--no-journal");
  table.ours().flag({"--no-journal"}, no_journal, "Keep no journal");
  table.ours()
      .flag({"--continue"}, resume,
            "Go on with the journal of a search that was ended: no finished trial is repeated, and the answer is the "
            "same as without the interruption")
      .exclude("--no-journal");
}

SearchOptions SearchArgs::options() const {
  SearchOptions options;
  if (objective) options.objective = objective_named(*objective).value_or(options.objective);
  if (margin && !(*margin > 0 && *margin <= 1))
    throw invalid_argument("[options] --margin: expected a number above 0 and at most 1, got {}", *margin);
  if (bits && !(*bits > 0))
    throw invalid_argument("[options] --bits: expected a number of bits per weight above 0, got {}", *bits);
  if (bits && objective && *objective != name_of(Objective::kError))
    throw invalid_argument(
        "[options] --bits and --objective {} contradict each other: a budget is for the least error; try one of them "
        "alone",
        *objective);
  options.bits = bits.value_or(0);
  if (bits) options.objective = Objective::kError;
  options.margin = margin.value_or(0);
  options.shrink = shrink;
  if (shrink && objective == name_of(Objective::kFastest))
    throw invalid_argument(
        "[options] --shrink and --objective fastest contradict each other: fewer layers need not be faster; try "
        "--objective smallest or cheapest");
  if (shrink && !objective && !bits) options.objective = Objective::kSmallest;
  options.repair = !no_repair;
  options.keep = keep;
  options.lower = lower;
  options.max_trials = max_trials.value_or(0);
  if (max_trials && *max_trials < 1)
    throw invalid_argument("[options] --max-trials: expected 1 or more, got {}", *max_trials);
  if (time_limit) options.time_limit = parse_duration("--time-limit", *time_limit);
  options.ray = ray.value_or("");
  options.ray_workers = ray_workers.value_or(0);
  if (ray && ray->empty()) throw invalid_argument("[options] --ray: expected auto, HOST:PORT or local, got nothing");
  if (ray_workers && (*ray_workers < 1 || !ray))
    throw invalid_argument("[options] --ray-workers: expected 1 or more, with --ray, got {}", *ray_workers);
  if (!ladder.empty()) {
    options.ladder.clear();
    for (const std::string& name : ladder) {
      const Precision precision = *request_named(name)->precision();
      if (std::ranges::find(options.ladder, precision) == options.ladder.end()) options.ladder.push_back(precision);
    }
    std::ranges::stable_sort(options.ladder, {}, [](Precision p) { return form_of(p).rank; });
  }
  return options;
}

std::filesystem::path SearchArgs::answer_path(const std::filesystem::path& model,
                                              const std::vector<std::string>& precisions) const {
  if (answer) return *answer;
  std::string name = model.stem().string();
  if (!precisions.empty()) name += fmt::format(".{}", fmt::join(precisions, "-"));
  return name + ".answer.json";
}

std::filesystem::path SearchArgs::journal_path(const std::filesystem::path& model,
                                               const std::vector<std::string>& precisions) const {
  if (no_journal) return {};
  if (journal) return *journal;
  std::filesystem::path path = answer_path(model, precisions);
  if (path.extension() == ".json") path.replace_extension();
  if (path.extension() == ".answer") path.replace_extension();
  path += ".journal.jsonl";
  return path;
}

double parse_duration(std::string_view option, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},   {"s", 1},    {"ms", 1e-3},
                                                            {"m", 60}, {"min", 60}, {"h", 3600}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string suffix = lower_case(end);
  for (const auto& [unit, factor] : kUnits)
    if (suffix == unit && end != text.c_str() && std::isfinite(number) && number > 0) return number * factor;
  throw invalid_argument("[options] {}: expected a time such as 30s, 2m or 1h, got '{}'", option, text);
}

}  // namespace ulpscope::cli
