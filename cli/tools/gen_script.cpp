#include "tools/gen_script.h"

#include <filesystem>

#include "core/messages.h"
#include "runners/script_host.h"
#include "tools/python_script.h"

namespace ulpscope::cli {
namespace {

std::string input_metadata(const RunOptions& options, PythonScript& script) {
  const auto shapes = options.model.shapes();
  if (shapes.empty()) return "";
  script.add_import("polygraphy.common", "TensorMetadata");
  std::string text = "TensorMetadata()";
  for (const auto& [name, shape] : shapes)
    text += fmt::format(".add({}, None, {})", python_string(name), shape_list(shape));
  return text;
}

void add_data_loader(const RunOptions& options, PythonScript& script) {
  const DataLoaderArgs& data = options.data;
  if (data.script) {
    const ScriptName source = ScriptName::parse(*data.script, "load_data");
    script.add_import("polygraphy", "mod");
    script.data_lines.push_back("data_loader = " + Call("mod.import_from_script")
                                                       .positional(python_string(source.path))
                                                       .named("name", python_string(source.function))
                                                       .text());
    script.data = "data_loader()";
    return;
  }
  Call call(data.load_inputs.empty() ? "DataLoader" : "StreamingDataLoader");
  if (!data.load_inputs.empty()) {
    call.positional(python_list(data.load_inputs)).flag("allow_dirs", true);
  } else {
    call.named("seed", data.seed ? std::to_string(*data.seed) : "")
        .named("iterations", data.iterations ? std::to_string(*data.iterations) : "")
        .named("input_metadata", input_metadata(options, script))
        .named("val_range", dictionary(data.ranges().entries(), [](const ValueRange& range) {
                 return fmt::format("({}, {})", python_value(range.low), python_value(range.high));
               }));
    if (call.plain()) return;
  }
  script.add_import("polygraphy.comparator", data.load_inputs.empty() ? "DataLoader" : "StreamingDataLoader");
  script.data_lines.push_back("data_loader = " + call.text());
  script.data = "data_loader";
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

/// "a, b, and c".
std::string series(const std::vector<std::string>& words) {
  if (words.size() < 3) return fmt::format("{}", fmt::join(words, " and "));
  return fmt::format("{}, and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

std::string about(const RunOptions& options) {
  std::vector<std::string> names;
  for (const std::string& runner : options.runners.runners)
    names.emplace_back(runner == "--trt" ? "TensorRT" : runner == "--onnxrt" ? "ONNX-Runtime" : "Plugin CPU Reference");
  std::string text;
  if (!names.empty())
    text += fmt::format("# This script {} {} {} {}.\n", names.size() > 1 ? "compares" : "runs",
                        one_line(std::filesystem::absolute(options.model.path()).lexically_normal().string()),
                        names.size() > 1 ? "between" : "using", series(names));
  if (!options.comparison.load_outputs.empty())
    text += fmt::format("# It will check against outputs stored in {}\n",
                        one_line(series(options.comparison.load_outputs)));
  return text;
}

void warn_of_own_options(const RunOptions& options) {
  const auto warn = [](bool given, const char* option) {
    if (given) log_warning("[gen-script] {} is left out: Polygraphy has no such option", option);
  };
  warn(!options.network.clamp_constants.empty(), "--clamp-constants");
  warn(options.network.repairs.has_value(), "--repairs");
  warn(options.config.fusion.has_value(), "--fusion");
  warn(options.config.accumulation.has_value(), "--accumulation");
  warn(options.config.attention.has_value(), "--attention");
  warn(options.config.assume_lowest, "--assume-lowest");
  warn(options.config.target.has_value(), "--target");
  warn(options.config.threads.has_value(), "--threads");
  warn(options.inference.python.time_limit.has_value(), "--python-time-limit");
  for (const Precision p : options.config.named_precisions().members())
    warn(!form_of(p).is_weakly_typed(), form_of(p).flag().c_str());
}

}  // namespace

std::string polygraphy_script(const RunOptions& options, const std::string& command) {
  warn_of_own_options(options);
  PythonScript script;
  if (!options.runners.runners.empty()) add_data_loader(options, script);
  std::vector<std::string> runners;
  for (const std::string& runner : options.runners.runners)
    runners.push_back(runner == "--trt"      ? tensorrt_runner_code(options, script)
                      : runner == "--onnxrt" ? onnxruntime_runner_code(options, script)
                                             : reference_runner_code(options, script));
  const std::vector<std::string> comparisons = comparison_code(options, script);

  std::string body;
  const auto section = [&](const char* title, const std::vector<std::string>& lines) {
    if (!lines.empty()) body += fmt::format("# {}\n{}\n\n", title, fmt::join(lines, "\n"));
  };
  section("Data Loader", script.data_lines);
  section("Loaders", script.loader_lines);
  section("Comparison Functions", script.comparison_lines);
  if (!runners.empty()) {
    body += "# Runners\nrunners = [\n";
    for (const std::string& runner : runners) body += fmt::format("    {},\n", runner);
    body += "]\n\n";
  }
  body += execution_code(options, script, comparisons);

  std::string text = fmt::format(
      "#!/usr/bin/env python3\n# Generated by ulpscope, for Polygraphy 0.53 or later\n# Generation Command: {}\n{}\n",
      one_line(command), about(options));
  return text + PythonScript::logger_lines() + script.import_lines() + "\n" + body;
}

std::string trt_config_script(const RunOptions& options) {
  warn_of_own_options(options);
  PythonScript script;
  script.add_import("polygraphy", "func");
  if (options.config.precisions().has(Precision::kINT8)) add_data_loader(options, script);
  const std::string loader = tensorrt_config_code(options, script);
  std::string text = fmt::format(
      "#!/usr/bin/env python3\n\"\"\"Creates a builder configuration: "
      "ulpscope run {} --trt --trt-config-script <this file>\"\"\"\n\n{}\n",
      one_line(options.model.model.value_or("MODEL")), script.import_lines());
  for (const auto& lines : {script.data_lines, script.loader_lines})
    if (!lines.empty()) text += fmt::format("{}\n", fmt::join(lines, "\n"));
  return text + fmt::format(
                    "\n\n@func.extend({})\ndef load_config(builder, network, config):\n"
                    "    pass  # Set up the rest of the configuration here. Nothing needs to be returned.\n",
                    loader);
}

}  // namespace ulpscope::cli
