#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/layer_kernels.h"
#include "backend/prepared_constants.h"
#include "backend/strides.h"
#include "core/parallel.h"
#include "core/vector_clones.h"
#include "ops/movement.h"

namespace ulpscope::cpu {

std::vector<std::int64_t> layout_strides(const Shape& shape, Layout layout) {
  return layout == Layout::kChannelsLast ? channels_last_strides(shape) : ops::strides_of(shape);
}

namespace {

/// [planes, count] to [count, planes]: images of two to four channels, the pixels of a photo.
template <int planes>
ULPSCOPE_VECTOR_CLONES void interleave(const float* in, std::int64_t plane, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    for (int k = 0; k < planes; ++k) out[i * planes + k] = in[k * plane + i];
}

using Interleave = void (*)(const float* in, std::int64_t plane, float* out, std::int64_t count);

Interleave interleave_of(std::int64_t planes) {
  switch (planes) {
    case 2:
      return interleave<2>;
    case 3:
      return interleave<3>;
    case 4:
      return interleave<4>;
    default:
      return nullptr;
  }
}

/// Of a batch of images.
void run_interleaved(Interleave interleave, const float* in, float* out, std::int64_t batch, std::int64_t planes,
                     std::int64_t pixels) {
  constexpr std::int64_t kPixels = 2048;
  const std::int64_t blocks = (pixels + kPixels - 1) / kPixels;
  parallel_each(batch * blocks, items_per_task(batch * blocks, kPixels * planes), [&](std::int64_t task) {
    const std::int64_t image = task / blocks * planes * pixels, first = task % blocks * kPixels;
    interleave(in + image + first, pixels, out + image + first * planes, std::min(kPixels, pixels - first));
  });
}

}  // namespace

std::unique_ptr<Kernel> make_reorder_kernel(const Shape& shape, Layout to, Rounding rounding) {
  std::int64_t spatial = 1;
  for (std::size_t d = 2; d < shape.size(); ++d) spatial *= shape[d];
  // A batch of matrix transpositions: [batch, rows, columns] to [batch, columns, rows].
  const bool to_last = to == Layout::kChannelsLast;
  const std::int64_t batch = shape[0], rows = to_last ? shape[1] : spatial, columns = to_last ? spatial : shape[1];
  const Interleave interleave = interleave_of(rows);
  return make_kernel("reorder", [=](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    float* out = outputs[0]->data<float>();
    if (interleave != nullptr) {
      run_interleaved(interleave, inputs[0]->data<float>(), out, batch, rows, columns);
    } else {
      const std::array<std::int64_t, 3> from{rows * columns, 1, columns}, into{rows * columns, rows, 1};
      ops::copy_strided(DataType::kFloat32, inputs[0]->raw(), from, out, into, {batch, columns, rows});
    }
    round_parallel(out, out, batch * rows * columns, rounding);
  });
}

}  // namespace ulpscope::cpu
