#include "backend/cpu/packed_columns.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/program_kernels.h"
#include "core/division.h"

namespace ulpscope::cpu {

using Index = std::int64_t;

Index packed_size(Index k, Index columns) { return k * round_up(columns, program_kernels().product.lanes); }

void pack_columns(const Columns& b, Index k, Index begin, Index end, float* to) {
  const ProductKernels& kernels = program_kernels().product;
  const Index panel = kernels.panel, whole = b.transposed ? 0 : (end - begin) / panel;
  // Row by row, so that neighbors are read together.
  for (Index i = 0; i < k && whole != 0; ++i)
    for (Index p = 0; p < whole; ++p)
      std::memcpy(to + (p * k + i) * panel, b.values + i * b.stride + begin + p * panel,
                  static_cast<std::size_t>(panel) * sizeof(float));
  for (Index column = begin + whole * panel; column < end; column += panel) {
    const Index width = std::min(panel, end - column), stored = round_up(width, kernels.lanes);
    float* const part = to + (column - begin) * k;
    if (width < stored) std::fill_n(part, k * stored, 0.0f);
    if (b.transposed)
      kernels.transpose(b.at(column), b.stride, width, k, part, stored);
    else
      for (Index i = 0; i < k; ++i) std::copy_n(b.values + i * b.stride + column, width, part + i * stored);
  }
}

}  // namespace ulpscope::cpu
