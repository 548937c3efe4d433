#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/cuda/element_source.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/moving.h"

namespace ulpscope::cuda {

KernelSource resample_source(const StridedTensor& in, const StridedTensor& out,
                             const std::vector<ResampledDimension>& axes, Rounding load, Rounding store) {
  constexpr int kThreads = 128;
  // A thread per element, side by side in the memory of the output.
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < out.shape.size(); ++d) order.push_back(d);
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t d) { return std::abs(out.strides[d]); });
  const auto is_resampled = [&](std::size_t d) {
    return std::ranges::find(axes, d, &ResampledDimension::dimension) != axes.end();
  };
  Dimensions dims;
  for (std::size_t d : order) dims.push_back({out.shape[d], {out.strides[d], is_resampled(d) ? 0 : in.strides[d]}});
  const bool wide = needs_wide(dims) || needs_wide(dimensions_of(in.shape, {&in.strides}));
  const std::int64_t threads = count_of(dims);

  std::string text = prelude() + moving_header(2 + 2 * axes.size(), kThreads) +
                     fmt::format("const {0} q = ({0})blockIdx.x * {1}u + threadIdx.x;\nif (q >= {2}) return;\n",
                                 wide ? "i64" : "u32", kThreads, literal(threads, wide)) +
                     coordinate_code(dims, "q", "x", 1, wide);
  std::string close, at = fmt::format("(i64)({})", offset_code(dims, 1, "x", wide));
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const auto place = std::ranges::find(order, axes[a].dimension) - order.begin();
    text += fmt::format(
        "float sum{0} = 0.0f;\n"
        "for (int k{0} = 0; k{0} < {1}; ++k{0}) {{\n"
        "const i64 t{0} = (i64)x{2} * {1} + k{0};\n"
        "const float w{0} = ((const float*)p{4})[t{0}];\n"
        "if (w{0} == 0.0f) continue;\n"
        "const i64 i{0} = ((const int*)p{3})[t{0}];\n",
        a, axes[a].taps, place, 1 + 2 * a, 2 + 2 * a);
    at += fmt::format(" + i{} * {}ll", a, in.strides[axes[a].dimension]);
    const std::string value = a + 1 < axes.size() ? fmt::format("sum{}", a + 1) : std::string("value");
    close = fmt::format("sum{0} += w{0} * {1};\n}}\n", a, value) + close;
  }
  const ProgramOutput stored{.type = out.type, .rounding = store};
  text += fmt::format("const float value = {};\n", load_code(in.type, load, "p0", at)) + close +
          store_code(stored, fmt::format("p{}", 1 + 2 * axes.size()), offset_code(dims, 0, "x", wide),
                     stored_code(stored, "sum0")) +
          "\n}\n";
  KernelSource source{std::move(text)};
  source.block = kThreads;
  source.grid[0] = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  return source;
}

}  // namespace ulpscope::cuda
