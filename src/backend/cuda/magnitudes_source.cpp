#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"
#include "ops/reduction/row_magnitudes.h"

namespace ulpscope::cuda {

/// A warp per row; a block counts in shared memory and adds to the device's counts once, since atomic operations of
/// every row would wait for each other.
KernelSource magnitudes_source(const StridedTensor& in) {
  using Counts = ops::RowMagnitudes;
  constexpr int kThreads = 256, kWarps = kThreads / 32;
  constexpr std::int64_t kMostBlocks = 1024;
  Shape outer(in.shape.begin(), in.shape.empty() ? in.shape.end() : in.shape.end() - 1);
  const std::vector<std::int64_t> strides(in.strides.begin(), in.strides.begin() + std::ssize(outer));
  const std::int64_t length = in.shape.empty() ? 1 : in.shape.back(), step = in.shape.empty() ? 0 : in.strides.back();
  const std::int64_t rows = num_elements(outer);
  const Dimensions dims = dimensions_of(outer, {&strides});
  const bool wide = needs_wide(dimensions_of(in.shape, {&in.strides}));
  std::string text = prelude() + moving_header(2, kThreads);
  // Sums of squares are exact but for the last bits of float64; everything else is the same in any order.
  text += fmt::format("__shared__ u32 counts[{0}];\nfor (int i = threadIdx.x; i < {0}; i += {1}) counts[i] = 0;\n",
                      static_cast<int>(Counts::kSize), kThreads);
  text += fmt::format(
      "__syncthreads();\nconst int lane = threadIdx.x % 32;\nu32 largest = 0, finite = 0, smallest = 0;\n"
      "for (i64 begin = (i64)blockIdx.x * {0}; begin < {1}ll; begin += (i64)gridDim.x * {0}) {{\n"
      "const i64 row = begin + threadIdx.x / 32;\ndouble squares = 0;\nif (row < {1}ll) {{\n",
      kWarps, rows);
  text += coordinate_code(dims, wide ? "row" : "(u32)row", "x", 1, wide);
  text += fmt::format("const i64 first = (i64)({});\n", offset_code(dims, 0, "x", wide));
  text += fmt::format("for (i64 i = lane; i < {}ll; i += 32) {{\nconst float x = fabsf({}), m = x < {} ? x : 0.0f;\n", length,
                      load_code(in.type, Rounding::kNone, "p0", fmt::format("first + i * {}ll", step)),
                      literal(Counts::kLargestCounted));
  text += fmt::format(
      "const u32 b = __float_as_uint(x), c = __float_as_uint(m);\nlargest = c > largest ? c : largest;\n"
      "if (b != 0 && b < {0}u) {{\nfinite = b > finite ? b : finite;\n"
      "smallest = {0}u - b > smallest ? {0}u - b : smallest;\n}}\nsquares += (double)m * m;\n}}\n}}\n",
      static_cast<std::int32_t>(Counts::kInfinity));
  text += "for (int d = 16; d > 0; d /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, d);\n";
  // The logarithm of the mean square, in bits to nearest, is that of its root in half bits: the exponent, and whether the
  // significand is beyond the root of 2.
  static_assert(Counts::kPerBit == 2);
  text += fmt::format(
      "if (lane == 0 && row < {4}ll) {{\nint bin = {0};\nif (squares != 0) {{\n"
      "const u64 bits = (u64)__double_as_longlong(squares / {1}.0);\n"
      "bin = (int)(bits >> 52) - 1023 - ({2}) + ((bits & 0xfffffffffffffull) >= 0x6a09e667f3bcdull ? 1 : 0);\n"
      "bin = bin < 0 ? 0 : bin > {3} ? {3} : bin;\n}}\natomicAdd(counts + bin, 1u);\n}}\n}}\n",
      static_cast<int>(Counts::kZeroRows), length, Counts::kFirstBit * Counts::kPerBit, Counts::kBins - 1,
      rows);
  text += fmt::format(
      "atomicMax(counts + {0}, largest);\natomicMax(counts + {4}, finite);\natomicMax(counts + {1}, smallest);\n"
      "__syncthreads();\nfor (int i = threadIdx.x; i < {2}; i += {3})\n"
      "if (counts[i] != 0) i >= {0} ? atomicMax((u32*)p1 + i, counts[i]) : atomicAdd((u32*)p1 + i, counts[i]);\n}}\n",
      static_cast<int>(Counts::kLargest), static_cast<int>(Counts::kSmallest), static_cast<int>(Counts::kSize),
      kThreads, static_cast<int>(Counts::kLargestFinite));
  KernelSource source{text};
  source.block = kThreads;
  source.grid[0] = static_cast<unsigned>(std::clamp<std::int64_t>((rows + kWarps - 1) / kWarps, 1, kMostBlocks));
  return source;
}

}  // namespace ulpscope::cuda
