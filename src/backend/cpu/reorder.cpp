#include "backend/cpu/reorder.h"

#include <algorithm>
#include <array>
#include <vector>

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

/// A batch of matrix transpositions: [batch, rows, columns] to [batch, columns, rows].
class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(std::int64_t batch, std::int64_t rows, std::int64_t columns, Rounding rounding)
      : batch_(batch), rows_(rows), columns_(columns), rounding_(rounding), interleave_(interleave_of(rows)) {}

  std::string name() const override { return "reorder"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    float* out = outputs[0]->data<float>();
    if (interleave_ != nullptr) {
      run_interleaved(inputs[0]->data<float>(), out);
    } else {
      const std::array<std::int64_t, 3> from{rows_ * columns_, 1, columns_}, to{rows_ * columns_, rows_, 1};
      ops::copy_strided(DataType::kFloat32, inputs[0]->raw(), from, out, to, {batch_, columns_, rows_});
    }
    round_parallel(out, out, batch_ * rows_ * columns_, rounding_);
  }

 private:
  void run_interleaved(const float* in, float* out) const {
    constexpr std::int64_t kPixels = 2048;
    const std::int64_t blocks = (columns_ + kPixels - 1) / kPixels;
    parallel_for(
        batch_ * blocks, items_per_task(batch_ * blocks, kPixels * rows_), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t task = begin; task < end; ++task) {
            const std::int64_t image = task / blocks * rows_ * columns_, first = task % blocks * kPixels;
            interleave_(in + image + first, columns_, out + image + first * rows_, std::min(kPixels, columns_ - first));
          }
        });
  }

  const std::int64_t batch_, rows_, columns_;
  const Rounding rounding_;
  const Interleave interleave_;
};

}  // namespace

std::unique_ptr<Kernel> make_reorder_kernel(const Shape& shape, Layout to, Rounding rounding) {
  std::int64_t spatial = 1;
  for (std::size_t d = 2; d < shape.size(); ++d) spatial *= shape[d];
  if (to == Layout::kChannelsLast) return std::make_unique<ReorderKernel>(shape[0], shape[1], spatial, rounding);
  return std::make_unique<ReorderKernel>(shape[0], spatial, shape[1], rounding);
}

}  // namespace ulpscope::cpu
