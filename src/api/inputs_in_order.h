// Inputs by name, as engines take them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/onnx_engine_impl.h"
#include "ulpscope/error.h"

namespace ulpscope {

inline std::string names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> result;
  for (const TensorSpec& spec : specs) result.push_back(fmt::format("'{}'", spec.name));
  return fmt::format("{}", fmt::join(result, ", "));
}

/// What a run of the engine takes of tensors by name, and which constants are among it. Throws Error(kInvalidArgument)
/// for names that are missing or unknown.
template <typename AnyTensor>
std::pair<std::vector<AnyTensor>, std::vector<std::string>> in_order(const OnnxEngine::Impl& impl,
                                                                     const std::map<std::string, AnyTensor>& inputs) {
  std::vector<AnyTensor> ordered;
  for (const TensorSpec& spec : impl.inputs) {
    const auto found = inputs.find(spec.name);
    if (found == inputs.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[run] input '{}' is missing; the inputs are {}", spec.name, names_of(impl.inputs)));
    }
    ordered.push_back(found->second);
  }
  std::vector<std::string> given;
  for (const TensorSpec& spec : impl.defaults) {
    const auto found = inputs.find(spec.name);
    if (found == inputs.end()) continue;
    given.push_back(spec.name);
    ordered.push_back(found->second);
  }
  for (const auto& [name, tensor] : inputs) {
    const auto has = [&](const std::vector<TensorSpec>& specs) {
      return std::ranges::find(specs, name, &TensorSpec::name) != specs.end();
    };
    if (!has(impl.inputs) && !has(impl.defaults))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[run] there is no input '{}'; the inputs are {}", name, names_of(impl.inputs)));
  }
  return {std::move(ordered), std::move(given)};
}

}  // namespace ulpscope
