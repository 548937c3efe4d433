#include "tools/relax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "convert/casts.h"
#include "engine/assign.h"
#include "precision/trials.h"
#include "tools/precision_setup.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

std::vector<TensorMap> golden_outputs(const RelaxArgs& args, const Network& network, const Criterion& criterion,
                                      const std::vector<TensorMap>& samples, Trials& trials) {
  if (!args.golden) return trials.run(trials.full_precision(), /*keep=*/false);
  std::vector<TensorMap> golden = load_golden(*args.golden, network).iterations;
  std::vector<ExpectedOutput> expected;
  for (const NamedTensor& output : golden.front())
    expected.push_back({output.name, Shape(output.tensor.shape().size(), -1)});
  check_golden(golden, expected, criterion, args.comparison.infinities_compare_equal, std::ssize(samples));
  return golden;
}

}  // namespace

void RelaxArgs::declare(OptionTable& table) {
  table.section("Fewer casts", "what --relax may raise.");
  table
      .flag({"--relax"}, relax,
            "Neighbours of kept layers may stay in float32, too, where that saves more time as casts than it costs; "
            "the outputs are held against the tolerance of the answer, or of the options below, first")
      .ours();
  table
      .value({"--golden"}, golden, "FILE",
             "Results to compare with (default: those that the answer was found with, or the model in float32)")
      .ours();
  table.value({"--save-answer"}, save_answer, "FILE", "With --answer: the answer with the layers that --relax raised")
      .ours();
  table.list({"--rtol", "--rel-tol"}, comparison.rtol, "[NAME:]X", "For --relax: relative tolerance");
  table.list({"--atol", "--abs-tol"}, comparison.atol, "[NAME:]X", "For --relax: absolute tolerance");
  criterion.declare(table);
}

void RelaxArgs::check(bool has_answer) const {
  if (save_answer && !has_answer)
    throw Error(ErrorCode::kInvalidArgument, "[options] --save-answer: expected --answer too, which it is made from");
  if (!relax && (golden || !criterion_words(criterion, comparison).empty()))
    throw Error(ErrorCode::kInvalidArgument,
                "[options] --golden and tolerances: expected --relax too, which is held against them");
}

void RelaxArgs::complete_from(const AnswerFile* answer) {
  if (!criterion_words(criterion, comparison).empty()) return;
  if (answer == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                "[options] --relax: expected a tolerance that the outputs must stay within, got none; try --answer "
                "ANSWER.json, or --metric rel-l2 --threshold 0.01");
  if (answer->criterion_options.empty() || !read_criterion_words(answer->criterion_options, criterion, comparison))
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[options] --relax: the answer does not say its tolerance ({}) as options; try --metric and "
                    "--threshold, or --rtol and --atol",
                    answer->answer.criterion));
  if (!golden && !answer->golden.empty()) golden = answer->golden;
}

std::vector<LayerId> find_layers_to_raise(const RelaxArgs& args, const std::shared_ptr<const Network>& network,
                                          const BuildOptions& build, const std::vector<TensorMap>& samples,
                                          ScriptHost& host, const Specialization& spec,
                                          const std::vector<std::optional<DataType>>& requested) {
  std::vector<std::string> outputs;
  for (const TensorId id : network->outputs) outputs.push_back(network->tensor(id).name);
  const auto criterion = make_criterion(args.criterion, args.comparison, host, outputs);
  const Assignment before = assign_precisions(spec, build, &requested);
  std::vector<char> may_raise(network->layers.size());
  for (std::size_t l = 0; l < may_raise.size(); ++l) may_raise[l] = !requested[l];
  const std::vector<LayerId> raised = raised_to_save_casts(spec, before, {}, may_raise, find_target(build.target));
  if (raised.empty()) {
    log_info("[convert] --relax: no layer saves more as casts in float32 than it costs there");
    return {};
  }
  auto completed = requested;
  std::vector<std::string> names;
  for (const LayerId id : raised) {
    completed[static_cast<std::size_t>(id)] = DataType::kFloat32;
    names.push_back(network->layer(id).name);
  }
  const Assignment after = assign_precisions(spec, build, &completed);
  Trials trials(network, build, samples);
  const auto golden = golden_outputs(args, *network, *criterion, samples, trials);
  const Judgement judged = criterion->judge(golden, trials.run(after, /*keep=*/false));
  const std::string verdict = fmt::format("{:.4g} of the tolerance is used ({}, {} sample(s))", judged.used,
                                          criterion->description(), samples.size());
  if (!judged.passed()) {
    log_warning(fmt::format("[convert] --relax: with {} layer(s) raised, {}{}{}: they stay as they are", raised.size(),
                            verdict, judged.problem.empty() ? "" : ", ", judged.problem));
    return {};
  }
  log_info(fmt::format("[convert] --relax: {} layer(s) raised to float32, {} cast(s) instead of {}; {}: {}",
                       raised.size(), place_casts(spec, after, {}).casts, place_casts(spec, before, {}).casts, verdict,
                       fmt::join(names, ", ")));
  return raised;
}

void add_raised_layers(const Network& network, const std::vector<LayerId>& raised, AnswerFile& file) {
  std::vector<std::string> words;
  for (const LayerId id : raised) {
    const Layer& layer = network.layer(id);
    KeptLayer row;
    row.name = layer.name;
    row.op = layer.op->name;
    row.nodes = layer.nodes;
    row.precision = Precision::kFP32;
    row.reason.kind = ReasonKind::kRequested;
    row.reason.text = "raised by convert --relax, which saves casts beside its neighbours";
    file.answer.kept.push_back(std::move(row));
    words.push_back(layer.name + ":float32");
  }
  if (words.empty()) return;
  file.answer.message += fmt::format("; {} more kept, which saves casts", words.size());
  auto& options = file.run_options;
  auto place = std::ranges::find(options, "--layer-precisions");
  if (place == options.end()) place = options.insert(options.end(), "--layer-precisions");
  options.insert(place + 1, words.begin(), words.end());
}

}  // namespace ulpscope::cli
