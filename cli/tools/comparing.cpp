#include "tools/comparing.h"

#include <fmt/format.h>

#include "compare/log_levels.h"

namespace ulpscope::cli {
namespace {

/// A user's function as a comparison.
CompareFunction scripted_comparison(ScriptHost& host, const ScriptName& script) {
  return [&host, script](const IterationResult& first, const IterationResult& second) {
    const ScriptComparison verdict = host.compare(script, first, second);
    IterationVerdict result;
    for (std::size_t i = 0; i < verdict.outputs.size(); ++i) {
      const auto& [output, passed] = verdict.outputs[i];
      const std::string about = output.empty() ? "" : fmt::format(" | Output: '{}'", output);
      const std::string detail =
          i < verdict.details.size() && !verdict.details[i].empty() ? " | " + verdict.details[i] : "";
      log_result(passed, fmt::format("{}{} | {}{}", passed ? "PASSED" : "FAILED", about, script.function, detail));
      OutputVerdict entry;
      entry.output = entry.other_output = output;
      entry.passed = passed;
      result.push_back(std::move(entry));
    }
    return result;
  };
}

}  // namespace

std::vector<CompareFunction> compare_functions(const ComparisonArgs& args, ScriptHost& host,
                                               std::function<void(const ComparedOutput&)> draw) {
  if (args.script) return {scripted_comparison(host, ScriptName::parse(*args.script, "compare_outputs"))};
  CompareOptions options = args.options();
  options.draw = std::move(draw);
  std::vector<CompareFunction> functions;
  for (const std::string& name : args.compare) functions.push_back(compare_function(name, options));
  if (functions.empty()) functions.push_back(compare_function("simple", options));
  return functions;
}

}  // namespace ulpscope::cli
