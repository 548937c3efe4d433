// The difference of two arrays, element by element, in the types that NumPy would choose.
#pragma once

#include <cstdint>

#include "compare/visit.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

struct Difference {
  Tensor absolute;                  ///< |a - b|; xor for two bools.
  Tensor relative;                  ///< absolute / |b|, with 2^-52 instead of a floating 0 in b.
  bool zeros_in_reference = false;  ///< b is floating and has exact zeros.
};

/// float16 is computed in float32, 8- and 16-bit integers in int32 and uint32 in int64; mixed types follow NumPy's
/// promotion. With `infinities_equal`, equal infinities differ by 0, otherwise by NaN.
/// REQUIRES: equal shapes.
Difference difference(const Tensor& a, const Tensor& b, bool infinities_equal = false);

/// Calls function(absolute elements, relative elements) with pointers of their types.
template <typename Function>
void visit_elements(const Difference& difference, const Function& function) {
  visit_type(difference.absolute.type(), [&]<typename A>(A) {
    if (difference.relative.type() == DataType::kFloat32)
      function(difference.absolute.data<A>(), difference.relative.data<float>());
    else
      function(difference.absolute.data<A>(), difference.relative.data<double>());
  });
}

/// How many elements have (absolute > atol or NaN) and (relative > rtol or NaN).
std::int64_t count_mismatches(const Difference& difference, double atol, double rtol);

}  // namespace ulpscope
