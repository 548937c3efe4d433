// Making an array fit a shape, and a name fit a list of names, as Polygraphy does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// True if `shape` has the rank of `pattern` and equals it wherever that is not -1.
bool shape_fits(const Shape& shape, const Shape& pattern);

/// The tensor permuted (if the dimensions are the same but for their order) or reshaped to `shape`, which may have one
/// -1; as it was when neither is possible. Logs what it did.
Tensor match_shape(const Tensor& tensor, Shape shape);

/// A copy with the axes in another order: dimension i of the result is dimension axes[i] of the input.
Tensor permute(const Tensor& tensor, const std::vector<std::int64_t>& axes);

/// The index of `name` in `names`: exact; else the first that contains it or is contained in it, ignoring case; else
/// `fallback`, if that is a valid index. Nothing otherwise.
std::optional<std::size_t> find_similar(std::string_view name, const std::vector<std::string>& names,
                                        std::optional<std::size_t> fallback = std::nullopt);

/// Python's fnmatch with case: `*`, `?`, `[abc]`, `[!abc]`, `[a-z]`.
bool matches_wildcard(std::string_view text, std::string_view pattern);

}  // namespace ulpscope
