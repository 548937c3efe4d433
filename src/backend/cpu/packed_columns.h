// Matrices as packed products read them.
#pragma once

#include <cstdint>

namespace ulpscope::cpu {

/// A matrix b [k, n] in memory, or as [n, k].
struct Columns {
  const float* values;
  std::int64_t stride;  ///< From row to row.
  bool transposed;

  const float* at(std::int64_t column) const { return values + column * (transposed ? stride : 1); }
};

/// Elements of so many columns, packed.
std::int64_t packed_size(std::int64_t k, std::int64_t columns);

/// Columns [begin, end) as ProductPart::b wants them.
void pack_columns(const Columns& b, std::int64_t k, std::int64_t begin, std::int64_t end, float* to);

}  // namespace ulpscope::cpu
