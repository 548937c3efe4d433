#include "precision/sample_pairs.h"

#include <fmt/format.h>

#include "ulpscope/error.h"

namespace ulpscope {

const Tensor* find_tensor(const TensorMap& tensors, const std::string& name) {
  for (const NamedTensor& entry : tensors)
    if (entry.name == name) return &entry.tensor;
  return nullptr;
}

std::string output_list(const TensorMap& tensors) {
  std::string text;
  for (const NamedTensor& entry : tensors) text += fmt::format("{}'{}'", text.empty() ? "" : ", ", entry.name);
  return text.empty() ? "none" : text;
}

void visit_pairs(const Criterion& criterion, std::span<const TensorMap> golden, std::span<const TensorMap> candidate,
                 const std::function<void(const SamplePair&)>& visit) {
  if (golden.size() != candidate.size() || golden.empty())
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[criterion] samples: expected as many candidate as golden ones, at least one, got {} and {}",
                    candidate.size(), golden.size()));
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
        throw Error(ErrorCode::kInvalidArgument, fmt::format("[criterion] sample {}: expected an output '{}', got {}",
                                                             sample, entry.name, output_list(outputs)));
      if (other->shape() != entry.tensor.shape())
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("[criterion] output '{}', sample {}: expected shape {} as in the golden outputs, got {}",
                        entry.name, sample, to_string(entry.tensor.shape()), to_string(other->shape())));
      visit({entry.name, static_cast<int>(sample), entry.tensor, *other});
    }
  }
  if (!any)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[criterion] expected an output with a threshold, got {}; try a threshold without a name, "
                            "which holds for every output",
                            output_list(golden.front())));
}

}  // namespace ulpscope
