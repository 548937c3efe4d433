#include "precision/sample_pairs.h"

#include <fmt/format.h>

#include "core/messages.h"

namespace ulpscope {

std::string output_list(const TensorMap& tensors) {
  std::string text;
  for (const NamedTensor& entry : tensors) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", entry.name);
  return text.empty() ? "none" : text;
}

void visit_pairs(const Criterion& criterion, std::span<const TensorMap> golden, std::span<const TensorMap> candidate,
                 const std::function<void(const SamplePair&)>& visit) {
  if (golden.size() != candidate.size() || golden.empty())
    throw invalid_argument(
        "[criterion] samples: expected as many candidate as golden ones, at least one, got {} and {}", candidate.size(),
        golden.size());
  bool any = false;
  for (std::size_t sample = 0; sample < golden.size(); ++sample) {
    for (std::size_t i = 0; i < golden[sample].size(); ++i) {
      const NamedTensor& entry = golden[sample][i];
      if (!criterion.judges(entry.name)) continue;
      any = true;
      const TensorMap& outputs = candidate[sample];
      const bool same_place = i < outputs.size() && outputs[i].name == entry.name;
      const Tensor* other = same_place ? &outputs[i].tensor : find_tensor(outputs, entry.name);
      if (other == nullptr)
        throw invalid_argument("[criterion] sample {}: expected an output '{}', got {}", sample, entry.name,
                               output_list(outputs));
      visit({entry.name, static_cast<int>(sample), entry.tensor, *other});
    }
  }
  if (!any)
    throw invalid_argument(
        "[criterion] expected an output with a threshold, got {}; try a threshold without a name, which holds for "
        "every output",
        output_list(golden.front()));
}

std::string problem_of(const SamplePair& pair) {
  const std::string where = fmt::format("output '{}', sample {}: ", pair.output, pair.sample);
  if (pair.golden.shape() != pair.candidate.shape())
    return where + fmt::format("shape {} where the golden output has {}", to_string(pair.candidate.shape()),
                               to_string(pair.golden.shape()));
  const NonFinite foreign = count_non_finite(pair.golden, pair.candidate);
  if (foreign.nan + foreign.inf == 0) return "";
  return where + fmt::format("{} NaN and {} Inf where the golden output has other values", foreign.nan, foreign.inf);
}

}  // namespace ulpscope
