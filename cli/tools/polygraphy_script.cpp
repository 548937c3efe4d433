#include "tools/polygraphy_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "calibration/calibrators.h"
#include "compare/log_levels.h"
#include "compare/name_values.h"
#include "core/messages.h"
#include "runners/worker.h"

namespace ulpscope::cli {
namespace {

/// "float16", as TensorRT's module has it.
std::string tensorrt_type(const std::string& text, const std::string& word, const char* option) {
  using enum DataType;
  constexpr std::array kTensorrt{kFloat32, kFloat16, kBFloat16, kInt8, kInt32, kInt64, kUInt8, kBool, kFloat8E4M3};
  const std::optional<DataType> known = data_type_from_name(text);
  if (!known || std::ranges::find(kTensorrt, *known) == kTensorrt.end())
    throw invalid_argument("[options] {} '{}': expected a type of TensorRT", option, word);
  return std::string(name_of(*known));
}

void name_types(std::vector<std::string>& words, const char* option) {
  for (std::string& word : words) {
    const auto [name, text] = split_name(word);
    if (name.empty())
      throw invalid_argument("[options] Could not parse argument: {}. {} takes <name>:<type>, got no name", word,
                             option);
    word = name + ":" + tensorrt_type(text, word, option);
  }
}

/// What is said in our words, or in those of older releases, in words of Polygraphy.
void translate(RunOptions& options) {
  TrtConfigArgs& config = options.config;
  if (config.obey || config.strict) config.constraints = "obey";
  config.obey = config.strict = false;
  for (const LayerForm& form : layer_forms())
    if (config.weights_only && !form.is_float()) config.allow(form.precision) = false;
  if (config.calib_base_cls)
    config.calib_base_cls = class_name_of(calibration_algorithm_from_name(*config.calib_base_cls));
  TrtNetworkArgs& network = options.network;
  name_types(network.layer_precisions, "--layer-precisions");
  name_types(network.tensor_dtypes, "--tensor-dtypes");
  if (std::optional<std::string>& all = network.all_tensor_dtypes)
    all = tensorrt_type(*all, *all, "--all-tensor-dtypes");
  DataLoaderArgs& data = options.data;
  if (data.int_min || data.int_max || data.float_min || data.float_max)
    if (const ValueRange* all = data.ranges().find(""))
      data.val_range.push_back(fmt::format("[{},{}]", all->low, all->high));
  data.int_min = data.int_max = data.float_min = data.float_max = std::nullopt;
  options.answer.reset();  // All that it says has been applied.
  config.backend.reset();
}

/// Polygraphy takes such values as they are, into the script.
void check_values(const RunOptions& options) {
  options.comparison.options();
  options.data.ranges();
  options.config.build_options(options.model);
}

}  // namespace

std::string polygraphy_script(const std::string& tool, const std::string& output, RunOptions options,
                              void (*declare)(RunOptions&, OptionTable&)) {
  check_values(options);
  translate(options);
  options.gen_script.reset();
  OptionTable table("polygraphy " + tool, "");
  declare(options, table);
  std::vector<std::string> words = table.words([](const Option& option) {
    const bool repairs = option.canonical() == "--repairs" || option.canonical() == "--clamp-constants";
    log_warning("[gen-script] {} is left out: Polygraphy has no such option{}", option.canonical(),
                repairs ? "; give the script a model that has the repairs (`convert --repair-only`)" : "");
  });
  if (const std::string level(least_log_level()); level != "INFO") words.insert(words.end(), {"--verbosity", level});
  WorkerOptions worker = default_worker_options();
  // The script may go to the standard output.
  worker.output = [](bool, std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); };
  return Worker::start(worker)
      ->call("polygraphy_script", Value::Map{{"tool", tool}, {"words", Value::of_strings(words)}, {"output", output}})
      .text();
}

}  // namespace ulpscope::cli
