// An array as NumPy prints it (numpy.array2string with default options): precision 8, line width 75.
#pragma once

#include <string>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// Nested brackets, columns aligned. Meant for at most 1000 elements: nothing is summarised.
std::string array_text(const Tensor& tensor);

}  // namespace ulpscope
