// Dimensions that several operands share, in the order of memory and as few as possible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ulpscope/shape.h"

namespace ulpscope::cuda {

/// One dimension and each operand's step along it, in elements.
struct Dimension {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;
};
using Dimensions = std::vector<Dimension>;

/// Dimensions of a shape; `strides` per operand.
Dimensions dimensions_of(const Shape& shape, const std::vector<const std::vector<std::int64_t>*>& strides);

/// Without those of size 1, the outermost first in the memory of the operands, adjacent ones merged where every operand
/// allows it. `rank`: which operands decide the order, the most important first; later ones decide where earlier ones
/// do not move.
Dimensions canonical(Dimensions dims, const std::vector<std::size_t>& rank);

/// Which dimension is the outermost in memory, the next one, ...
std::vector<std::size_t> memory_order(const std::vector<std::int64_t>& strides);

/// The product of the sizes.
std::int64_t count_of(const Dimensions& dims);

/// The largest distance, in elements, of an operand's element from its element 0.
std::int64_t reach_of(const Dimensions& dims, std::size_t operand);

/// Statements that declare PREFIX0, PREFIX1, ...: coordinates of the linear index `index` of these dimensions, of which
/// the last is counted in steps of `step`.
std::string coordinate_code(const Dimensions& dims, const std::string& index, const std::string& prefix,
                            std::int64_t step, bool wide);

/// The operand's offset at these coordinates: "x0 * 768u + x1"; "0" if it never moves.
std::string offset_code(const Dimensions& dims, std::size_t operand, const std::string& prefix, bool wide);

/// The largest power of two up to 16 that divides the address of every `vector` elements along the last dimension.
int word_bytes(const std::vector<const Dimensions*>& groups, const Dimension& last, std::size_t operand, int vector,
               int element_bytes, int alignment);

}  // namespace ulpscope::cuda
