#include "compare/pairing.h"

#include "compare/log_levels.h"
#include "compare/shape_match.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

std::vector<std::string> names_of(const IterationResult& result) {
  std::vector<std::string> names;
  for (const NamedTensor& output : result.outputs) names.push_back(output.name);
  return names;
}

std::string described(const std::string& name, const Tensor& tensor) {
  return "'" + name + "' (dtype=" + std::string(name_of(tensor.type())) + ", shape=" + to_string(tensor.shape()) + ")";
}

}  // namespace

std::optional<std::string> pair_output(const IterationResult& first, std::size_t index, const IterationResult& second) {
  const std::string& name = first.outputs[index].name;
  const std::vector<std::string> candidates = names_of(second);
  const auto found = find_similar(name, candidates, index);
  if (!found) {
    log_warning("For output: '" + name + "' [" + first.runner_name +
                "], skipping it, since no corresponding output was found in [" + second.runner_name + "]");
    return std::nullopt;
  }
  const std::string& partner = candidates[*found];
  if (partner == name) return partner;
  if (first.find(partner) != nullptr) {
    log_verbose("Will not compare " + partner + " with " + name +
                ", since the former already has an exact match: " + partner);
    log_warning("For output: '" + name + "' [" + first.runner_name +
                "], skipping it, since no corresponding output was found in [" + second.runner_name + "]");
    return std::nullopt;
  }
  log_warning("Output names did not match exactly. Assuming " + second.runner_name + " output: " + partner +
              " corresponds to output: " + name);
  return partner;
}

IterationVerdict compare_outputs(const IterationResult& first, const IterationResult& second, std::string_view label,
                                 bool fail_fast, const MatchFunction& match) {
  const std::string prefix = label.empty() ? "" : std::string(label) + " | ";
  IterationVerdict verdicts;
  for (std::size_t i = 0; i < first.outputs.size(); ++i) {
    const NamedTensor& output = first.outputs[i];
    const auto partner = pair_output(first, i, second);
    if (!partner) continue;
    const Tensor& other = *second.find(*partner);
    log_start(prefix + "Comparing Output: " + described(output.name, output.tensor) + " with " +
              described(*partner, other));
    const LogIndent indent;
    verdicts.push_back(match(output.name, output.tensor, *partner, other));
    if (fail_fast && !verdicts.back().passed) return verdicts;
  }
  if (verdicts.empty() && !(first.outputs.empty() && second.outputs.empty())) {
    throw invalid_argument("[compare] All outputs were skipped, no common outputs found! " + first.runner_name +
                           " outputs: " + python_list(names_of(first)) + "; " + second.runner_name +
                           " outputs: " + python_list(names_of(second)));
  }
  std::vector<std::string> all, mismatched;
  for (const OutputVerdict& verdict : verdicts) {
    all.push_back(verdict.output);
    if (!verdict.passed) mismatched.push_back(verdict.output);
  }
  log_result(mismatched.empty(), mismatched.empty()
                                     ? "PASSED | " + prefix + "All outputs matched | Outputs: " + python_list(all)
                                     : "FAILED | " + prefix + "Mismatched outputs: " + python_list(mismatched));
  return verdicts;
}

std::optional<Tensor> align_shapes(const std::string& name, const Tensor& first, const Tensor& second,
                                   bool check_shapes) {
  if (first.shape() == second.shape()) return second;
  std::optional<Tensor> matched;
  if (!check_shapes) {
    matched = match_shape(second, first.shape());
    if (matched->shape() == first.shape()) return matched;
  }
  log_error("FAILED | Output: `" + name +
            "` | Will not compare outputs of different shapes.\nNote: Output shapes are " + to_string(first.shape()) +
            " and " + to_string(second.shape()) + ".");
  if (check_shapes)
    log_once(LogLevel::kError,
             "Note: Use --no-shape-check or set check_shapes=False to attempt to compare values anyway.");
  return std::nullopt;
}

void warn_unknown_name(const std::string& name, std::string_view what, const IterationResult& first,
                       const IterationResult& second) {
  if (first.find(name) != nullptr || second.find(name) != nullptr) return;
  log_warning("Extra items in " + std::string(what) + ": {" + python_string(name) +
              "}.\nNote: outputs are: " + python_list(names_of(first)));
}

}  // namespace ulpscope
