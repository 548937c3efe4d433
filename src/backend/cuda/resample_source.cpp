#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"
#include "graph/assignment.h"

namespace ulpscope::cuda {

namespace {

/// Elements side by side in the memory of both, along a dimension that is not resampled, that one thread computes.
int vector_of(const Dimensions& dims, const StridedTensor& in, const StridedTensor& out,
              const std::vector<ResampledDimension>& axes) {
  if (dims.empty() || dims.back().strides != std::vector<std::int64_t>{1, 1}) return 1;
  int vector = 8;
  const auto divides = [&](std::int64_t stride, DataType type) {
    return stride * static_cast<std::int64_t>(size_of(type)) %
               std::min<std::int64_t>(16, vector * static_cast<std::int64_t>(size_of(type))) ==
           0;
  };
  const auto fits = [&] {
    if (dims.back().size % vector != 0) return false;
    for (std::size_t d = 0; d + 1 < dims.size(); ++d)
      if (!divides(dims[d].strides[0], out.type) || !divides(dims[d].strides[1], in.type)) return false;
    return std::ranges::all_of(axes, [&](const auto& a) { return divides(in.strides[a.dimension], in.type); });
  };
  while (vector > 1 && !fits()) vector /= 2;
  return vector;
}

}  // namespace

/// A thread adds up the taps of each resampled axis in nested loops, the last axis innermost. Its vector of elements
/// lies along a dimension that is not resampled, where all of them share indices and weights.
KernelSource resample_source(const StridedTensor& in, const StridedTensor& out,
                             const std::vector<ResampledDimension>& axes, Rounding load, Rounding store) {
  constexpr int kThreads = 128;
  // Threads side by side in the memory of the output.
  const std::vector<std::size_t> order = memory_order(out.strides);
  const auto is_resampled = [&](std::size_t d) {
    return std::ranges::find(axes, d, &ResampledDimension::dimension) != axes.end();
  };
  Dimensions dims;
  for (std::size_t d : order) dims.push_back({out.shape[d], {out.strides[d], is_resampled(d) ? 0 : in.strides[d]}});
  const bool wide = needs_wide(dims) || needs_wide(dimensions_of(in.shape, {&in.strides}));
  // In words where nothing is rounded when it is read.
  const bool plain = is_exact(in.type, load);
  const auto write = [&](int vector) {
    std::string text = coordinate_code(dims, "q", "x", vector, wide);
    std::string close, at = fmt::format("(i64)({})", offset_code(dims, 1, "x", wide));
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const auto place = std::ranges::find(order, axes[a].dimension) - order.begin();
      text += fmt::format(
          "float sum{0}[{5}] = {{}};\n"
          "for (int k{0} = 0; k{0} < {1}; ++k{0}) {{\n"
          "const i64 t{0} = (i64)x{2} * {1} + k{0};\n"
          "const float w{0} = ((const float*)p{4})[t{0}];\n"
          "if (w{0} == 0.0f) continue;\n"
          "const i64 i{0} = ((const int*)p{3})[t{0}];\n",
          a, axes[a].taps, place, 1 + 2 * a, 2 + 2 * a, vector);
      at += fmt::format(" + i{} * {}ll", a, in.strides[axes[a].dimension]);
      const std::string value = a + 1 < axes.size() ? fmt::format("sum{}", a + 1) : std::string("value");
      close = fmt::format("#pragma unroll\nfor (int e = 0; e < {1}; ++e) sum{0}[e] += w{0} * {2}[e];\n}}\n", a, vector,
                          value) +
              close;
    }
    const std::string to = fmt::format("p{}", 1 + 2 * axes.size());
    if (vector == 1) {
      const ProgramOutput stored{.type = out.type, .rounding = store};
      return text + fmt::format("const float value[1] = {{{}}};\n", load_code(in.type, load, "p0", at)) + close +
             store_code(stored, to, offset_code(dims, 0, "x", wide), stored_code(stored, "sum0[0]")) + ";\n";
    }
    const auto word = [&](DataType type) { return std::min(16, vector * static_cast<int>(size_of(type))); };
    return text +
           fmt::format("float value[{0}];\nload<{1}, {0}, {2}>(p0 + ({3}) * {4}, value);\n", vector, type_code(in.type),
                       word(in.type), at, size_of(in.type)) +
           close +
           (is_exact(out.type, store)
                ? std::string()
                : fmt::format("for (int e = 0; e < {}; ++e) sum0[e] = {};\n", vector, rounded_code(store, "sum0[e]"))) +
           fmt::format("store<{0}, {1}, {2}>({3} + (i64)({4}) * {5}, sum0);\n", type_code(out.type), vector,
                       word(out.type), to, offset_code(dims, 0, "x", wide), size_of(out.type));
  };
  const int vector = plain ? vector_of(dims, in, out, axes) : 1;
  const std::int64_t threads = count_of(dims) / vector;
  const char* index = wide ? "i64" : "u32";
  std::string text = prelude() + moving_header(2 + 2 * axes.size(), kThreads) +
                     fmt::format("const {0} {3} = ({0})blockIdx.x * {1}u + threadIdx.x;\nif ({3} >= {2}) return;\n",
                                 index, kThreads, literal(threads, wide), vector == 1 ? "q" : "first");
  if (vector == 1)
    text += write(1);
  else
    text +=
        fmt::format("if ((u64)p0 % 16 == 0 && (u64)p{0} % 16 == 0) {{\nconst {1} q = first;\n", 1 + 2 * axes.size(),
                    index) +
        write(vector) +
        fmt::format("}} else {{\nfor (int v = 0; v < {0}; ++v) {{\nconst {1} q = first * {0} + v;\n", vector, index) +
        write(1) + "}\n}\n";
  KernelSource source{text + "}\n"};
  source.block = kThreads;
  source.grid[0] = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  return source;
}

}  // namespace ulpscope::cuda
