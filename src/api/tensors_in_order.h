// Inputs and outputs by name, as engines take them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/messages.h"
#include "ulpscope/onnx_engine.h"

namespace ulpscope {

inline std::string names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> result;
  for (const TensorSpec& spec : specs) result.push_back(fmt::format("'{}'", spec.name));
  return fmt::format("{}", fmt::join(result, ", "));
}

/// The tensors by name in the order of `required`, then those of `optional` that are among them, whose names come
/// second. Throws Error(kInvalidArgument) for names that are missing or unknown, which says `what` they are of.
template <typename AnyTensor>
std::pair<std::vector<AnyTensor>, std::vector<std::string>> in_order(const char* what,
                                                                     const std::vector<TensorSpec>& required,
                                                                     const std::vector<TensorSpec>& optional,
                                                                     const std::map<std::string, AnyTensor>& tensors) {
  std::vector<AnyTensor> ordered;
  for (const TensorSpec& spec : required) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end())
      throw invalid_argument("[run] {0} '{1}' is missing; the {0}s are {2}", what, spec.name, names_of(required));
    ordered.push_back(found->second);
  }
  std::vector<std::string> given;
  for (const TensorSpec& spec : optional) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) continue;
    given.push_back(spec.name);
    ordered.push_back(found->second);
  }
  for (const auto& [name, tensor] : tensors) {
    const auto has = [&](const std::vector<TensorSpec>& specs) {
      return std::ranges::find(specs, name, &TensorSpec::name) != specs.end();
    };
    if (!has(required) && !has(optional))
      throw invalid_argument("[run] there is no {0} '{1}'; the {0}s are {2}", what, name, names_of(required));
  }
  return {std::move(ordered), std::move(given)};
}

}  // namespace ulpscope
