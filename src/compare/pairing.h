// Which outputs of two runners belong together.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "compare/comparison.h"

namespace ulpscope {

/// Compares one pair of outputs, both present, and logs its lines.
using MatchFunction = std::function<OutputVerdict(const std::string& first_name, const Tensor& first,
                                                  const std::string& second_name, const Tensor& second)>;

/// Calls `match` for every output of `first` that has a partner, and logs the verdict over all of them. `label` ("L2
/// Norm") stands in front of the lines; it may be empty. Throws Error(kInvalidArgument) without any common output.
IterationVerdict compare_outputs(const IterationResult& first, const IterationResult& second, std::string_view label,
                                 bool fail_fast, const MatchFunction& match);

/// The second output in the shape of the first, or nothing if the shapes differ and may not or cannot be matched (then
/// FAILED was logged).
std::optional<Tensor> align_shapes(const std::string& name, const Tensor& first, const Tensor& second,
                                   bool check_shapes);

/// Warns when the name is an output of neither result.
void warn_unknown_name(const std::string& name, std::string_view what, const IterationResult& first,
                       const IterationResult& second);

/// The same for every name but the empty one.
template <typename T>
void warn_unknown_names(const PerName<T>& values, std::string_view what, const IterationResult& first,
                        const IterationResult& second) {
  for (const auto& entry : values.entries())
    if (!entry.first.empty()) warn_unknown_name(entry.first, what, first, second);
}

}  // namespace ulpscope
