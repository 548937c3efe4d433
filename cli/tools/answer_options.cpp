#include "tools/answer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/loaded_model.h"
#include "args/parser.h"
#include "core/messages.h"

namespace ulpscope::cli {

void AnswerSetArgs::declare(OptionTable& table) {
  table.ours()
      .value({"--objective"}, objective, "NAME",
             "With --answer: another one of the sets that it proved (default: that of the search)")
      .choose(objective_names());
  table.ours().value(
      {"--trial"}, trial, "N",
      "With --answer: the set of its trial N, from 0, as `report` numbers them, whether it passed or not");
}

void take_answer(const std::vector<std::string>& words, std::optional<std::string>& path) {
  if (words.empty()) return;
  if (path)
    throw UsageError(
        fmt::format("argument ANSWER: not allowed with argument --answer: got '{}' and '{}'", words.front(), *path));
  path = words.front();
}

AnswerFile read_answer_set(const std::string& path, const AnswerSetArgs& set) {
  if (set.objective && set.trial)
    throw invalid_argument("[options] --trial: expected no --objective, which names another set");
  if (set.trial && *set.trial < 0)
    throw invalid_argument("[options] --trial: expected the number of a trial, 0 or more, got {}", *set.trial);
  AnswerFile answer = read_answer(path);
  if (const auto objective = objective_named(set.objective.value_or("")))
    answer = with_set(std::move(answer), *objective);
  return set.trial ? with_trial(std::move(answer), static_cast<std::size_t>(*set.trial)) : answer;
}

namespace {

/// Throws for formats that the words of the command ask for and the answer was not found with.
void check_formats(const AnswerFile& answer, TrtConfigArgs config) {
  const auto holds = [&](const LayerForm& form) {
    return std::ranges::find(answer.precisions, form.name) != answer.precisions.end();
  };
  const auto refuse = [&](const std::string& words) {
    throw invalid_argument(
        "[options] --answer and {0}: the answer lowers layers to {1} and holds for that alone; try a search with {0}",
        words, fmt::join(answer.precisions, " and "));
  };
  const bool named = !config.formats.empty() || std::ranges::any_of(layer_forms(), [&](const LayerForm& form) {
    return !form.is_float() && config.allow(form.precision);
  });
  if (config.weights_only && !named) {
    for (const LayerForm& form : layer_forms())
      if (!form.is_float() && !form.is_of_weights() && holds(form)) refuse("--weights-only");
    config.weights_only = false;
  }
  for (const Precision each : config.named_precisions().members())
    if (each != Precision::kFP32 && !holds(form_of(each))) refuse(form_of(each).flag());
}

}  // namespace

void load_as(const AnswerFile& answer, TrtConfigArgs& config) {
  check_formats(answer, config);
  config.weights_only = false;
  config.block_size.reset();
  config.formats.clear();
  for (const LayerForm& form : layer_forms())
    if (form.precision != Precision::kFP32)
      config.allow(form.precision) = std::ranges::find(answer.precisions, form.name) != answer.precisions.end();
  if (!config.fusion) config.fusion = answer.fusion;
  if (!config.accumulation) config.accumulation = answer.accumulation;
  if (!config.attention) config.attention = answer.attention;
  if (!config.calibration_inputs.empty() || (config.weight_scales && *config.weight_scales != answer.weight_scales) ||
      (config.mx_scale_rule && *config.mx_scale_rule != answer.mx_scale_rule))
    throw invalid_argument(
        "[options] --answer: expected no --calibration-inputs, --weight-scales or --mx-scale-rule, which the answer "
        "has; try a search with them");
  config.weight_scales.reset();
  if (!answer.mx_scale_rule.empty()) config.mx_scale_rule = answer.mx_scale_rule;
}

namespace {

/// The words of `run`, whatever the working directory is: scales are those of the file itself.
std::vector<std::string> words_to_run(AnswerFile answer, bool with_engine) {
  if (!answer.scales.empty()) answer.calibration_cache.clear();
  std::vector<std::string> words = run_options(answer);
  if (!with_engine) std::erase(words, "--trt");
  return words;
}

}  // namespace

void apply_answer(RunOptions& options) {
  const AnswerFile answer = read_answer(*options.answer);
  options.model.check_exists();
  if (options.model.type() == ModelType::kEngine)
    throw invalid_argument("[options] --answer: expected the model that it was found for, got the engine '{}'",
                           *options.model.model);
  LoadedModel files;  // Before the network is read, which the answer has a say in.
  files.name = *options.model.model;
  files.path = options.model.path();
  files.external_data = options.onnx.external_data_dir.value_or("");
  check_answer_model(files, answer, fmt::format("[options] --answer '{}'", *options.answer));
  check_formats(answer, options.config);
  const std::vector<std::string> own = std::move(options.network.layer_precisions);
  options.network.layer_precisions.clear();
  const auto& runners = options.runners.runners;
  OptionTable table("ulpscope run", "");
  options.declare(table);
  parse(table, words_to_run(answer, std::ranges::find(runners, "--trt") == runners.end()));
  auto& precisions = options.network.layer_precisions;
  precisions.insert(precisions.end(), own.begin(), own.end());
  options.answer_scales = answer.scales;
}

}  // namespace ulpscope::cli
