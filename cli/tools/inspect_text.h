// Texts in the layout of Polygraphy's `inspect`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ulpscope::cli {

/// Every line four spaces per level further right; a line break at the end is dropped.
std::string indent_block(std::string_view text, int level = 1);

/// Without white space at both ends.
std::string stripped(std::string_view text);

/// "x [dtype=float32, shape=(1, 3)]"; what is empty is left out.
std::string tensor_text(std::string_view name, std::string_view type, std::string_view shape);

/// "{a,\n b}".
std::string braces(const std::vector<std::string>& entries);

/// "Layer 0    | name [Op: op]", then inputs and outputs (entries of tensor_text).
std::string layer_text(std::string_view prefix, std::size_t index, std::string_view name, std::string_view op,
                       const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

}  // namespace ulpscope::cli
