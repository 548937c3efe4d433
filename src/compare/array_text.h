// An array as NumPy prints it (numpy.array2string): precision 8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ulpscope/tensor.h"

namespace ulpscope {

struct ArrayTextOptions {
  std::size_t line_width = 75;
  /// Arrays of more elements are cut to `edge_items` at both ends of each axis that is longer than both, with "..." in
  /// between.
  std::int64_t threshold = 1000;
  std::int64_t edge_items = 3;
};

/// Nested brackets, columns aligned.
std::string array_text(const Tensor& tensor, const ArrayTextOptions& options = {});

}  // namespace ulpscope
