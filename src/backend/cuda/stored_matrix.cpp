#include "backend/cuda/stored_matrix.h"

#include <fmt/format.h>

#include "backend/cuda/element_source.h"
#include "backend/cuda/moving.h"
#include "formats/stored_elements.h"

namespace ulpscope::cuda {

KernelSource matrix_source(DataType type, const MatrixPart& part) {
  constexpr int kThreads = 256;
  std::string text = prelude() + moving_header(2, kThreads);
  text += fmt::format(R"(const i64* const part = (const i64*)p0;
const float* const in = (const float*)(p0 + {0});
const i64 rows = part[0], columns = part[1], first = part[2], all = part[3];
const i64 across = (columns + 31) / 32, x = blockIdx.x % across * 32, y = blockIdx.x / across * 32;
const int lane = threadIdx.x % 32;
if (part[4] == 0) {{
for (int r = threadIdx.x / 32; r < 32; r += 8)
if (y + r < rows && x + lane < columns)
store_one<{1}>(p1 + ((first + y + r) * columns + x + lane) * {2}, in[(y + r) * columns + x + lane]);
return;
}}
__shared__ float tile[32][33];
for (int r = threadIdx.x / 32; r < 32; r += 8)
if (y + r < rows && x + lane < columns) tile[r][lane] = in[(y + r) * columns + x + lane];
__syncthreads();
for (int r = threadIdx.x / 32; r < 32; r += 8)
if (x + r < columns && y + lane < rows) store_one<{1}>(p1 + ((x + r) * all + first + y + lane) * {2}, tile[lane][r]);
}}
)",
                      kMatrixPartBytes, type_code(type), size_of(type));
  KernelSource source{std::move(text)};
  source.block = kThreads;
  source.grid[0] = static_cast<unsigned>((part.columns + 31) / 32 * ((part.rows + 31) / 32));
  return source;
}

const void* stored_elements(const Tensor& tensor, Tensor& keep) {
  const auto source = tensor.source();
  const auto* stored = dynamic_cast<const StoredElements*>(source.get());
  if (stored != nullptr && stored->stored() == tensor.type()) return stored->bytes();
  keep = tensor.in_memory();
  return keep.raw();
}

}  // namespace ulpscope::cuda
