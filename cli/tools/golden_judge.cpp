#include "tools/golden_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/compare_functions.h"
#include "compare/validate.h"
#include "core/messages.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// The outputs that golden results have, as an iteration of ours.
IterationResult judged(const TensorMap& outputs, const TensorMap& golden) {
  IterationResult result;
  result.runner_name = "trial";
  for (const NamedTensor& wanted : golden)
    for (const NamedTensor& output : outputs)
      if (output.name == wanted.name) result.outputs.push_back(output);
  return result;
}

}  // namespace

std::vector<RequiredTolerances> compare_with_golden(std::span<const CompareFunction> functions,
                                                    const ComparisonArgs& args, const GoldenResults& golden,
                                                    const std::vector<TensorMap>& outputs, bool show) {
  const PerName<std::string> stats = args.options().error_stat;
  const LogFloor quiet(show ? LogLevel::kUltraVerbose : LogLevel::kCritical);
  std::vector<RequiredTolerances> result;
  for (const NamedTensor& output : golden.iterations.front()) result.push_back({output.name});
  const auto entry = [&](const std::string& name) -> RequiredTolerances& {
    const auto found = std::ranges::find(result, name, &RequiredTolerances::output);
    return found != result.end() ? *found : result.emplace_back(RequiredTolerances{name});
  };
  for (std::size_t i = 0; i < golden.iterations.size(); ++i) {
    const IterationResult ours = judged(outputs[i], golden.iterations[i]);
    IterationResult theirs;
    theirs.runner_name = golden.runner;
    theirs.outputs = golden.iterations[i];
    if (golden.iterations.size() > 1) log_info("Iteration: {}", i);
    const LogIndent indent(golden.iterations.size() > 1 ? 1 : 0);
    for (const CompareFunction& function : functions) {
      for (const OutputVerdict& verdict : function(ours, theirs)) {
        RequiredTolerances& required = entry(verdict.output);
        required.passed = required.passed && verdict.passed;
        if (!verdict.metrics) continue;
        const auto [absolute, relative] = selected_error(*verdict.metrics, stats.get(verdict.output, "elemwise"));
        required.atol = required.known ? larger(absolute, required.atol) : absolute;
        required.rtol = required.known ? larger(relative, required.rtol) : relative;
        required.known = true;
      }
    }
    if (args.validate && !validate({{"trial", {ours}}}, {}).passed)
      for (const NamedTensor& output : ours.outputs)
        if (!validate({{"trial", {IterationResult{{output}, {}, "trial"}}}}, {}).passed)
          entry(output.name).passed = false;
    if (args.fail_fast && !all_passed(result)) break;
  }
  return result;
}

std::string describe(const RequiredTolerances& required) {
  const std::string verdict = fmt::format("{} | Output: {}", required.passed ? "PASSED" : "FAILED", required.output);
  if (!required.known) return verdict;
  return fmt::format("{} | Required Tolerances: (atol={}, rtol={})", verdict, python_float(required.atol),
                     python_float(required.rtol));
}

bool all_passed(std::span<const RequiredTolerances> required) {
  return std::ranges::all_of(required, &RequiredTolerances::passed);
}

}  // namespace ulpscope::cli
