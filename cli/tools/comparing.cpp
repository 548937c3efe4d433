#include "tools/comparing.h"

#include <fmt/format.h>

#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

template <typename T>
void override_values(PerName<T>& values, const PerName<T>& given) {
  for (const auto& [name, value] : given.entries()) values.set(name, value);
}

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
      log(passed ? LogLevel::kInfo : LogLevel::kError,
          fmt::format("{}{} | {}{}", passed ? "PASSED" : "FAILED", about, script.function, detail));
      OutputVerdict entry;
      entry.output = entry.other_output = output;
      entry.passed = passed;
      result.push_back(std::move(entry));
    }
    return result;
  };
}

}  // namespace

CompareOptions compare_options(const ComparisonArgs& args) {
  CompareOptions options;
  options.check_shapes = !args.no_shape_check;
  options.fail_fast = args.fail_fast;
  override_values(options.atol, parse_numbers("--atol", args.atol));
  override_values(options.rtol, parse_numbers("--rtol", args.rtol));
  override_values(options.error_stat, parse_strings("--check-error-stat", args.check_error_stat));
  check_error_stats(options.error_stat);
  override_values(options.error_quantile, parse_numbers("--error-quantile", args.error_quantile));
  override_values(options.index_tolerance, parse_integers("--index-tolerance", args.index_tolerance));
  options.infinities_compare_equal = args.infinities_compare_equal;
  return options;
}

std::vector<CompareFunction> compare_functions(const ComparisonArgs& args, ScriptHost& host) {
  if (args.script) return {scripted_comparison(host, ScriptName::parse(*args.script, "compare_outputs"))};
  const CompareOptions options = compare_options(args);
  std::vector<CompareFunction> functions;
  for (const std::string& name : args.compare) functions.push_back(compare_function(name, options));
  if (functions.empty()) functions.push_back(compare_function("simple", options));
  return functions;
}

}  // namespace ulpscope::cli
