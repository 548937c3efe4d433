#include "backend/cpu/reorder.h"

#include <algorithm>
#include <vector>

#include "backend/strides.h"
#include "core/parallel.h"
#include "ops/common.h"

namespace ulpscope::cpu {

std::vector<std::int64_t> layout_strides(const Shape& shape, Layout layout) {
  return layout == Layout::kChannelsLast ? channels_last_strides(shape) : ops::strides_of(shape);
}

namespace {

/// A batch of matrix transpositions: [batch, rows, columns] to [batch, columns, rows].
class ReorderKernel final : public Kernel {
 public:
  ReorderKernel(std::int64_t batch, std::int64_t rows, std::int64_t columns, Rounding rounding)
      : batch_(batch), rows_(rows), columns_(columns), rounding_(rounding) {}

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const float* in = inputs[0]->data<float>();
    float* out = outputs[0]->data<float>();
    constexpr std::int64_t kBlock = 32;
    const std::int64_t blocks = (columns_ + kBlock - 1) / kBlock;
    const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (kBlock * std::max<std::int64_t>(rows_, 1)));
    parallel_for(batch_ * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task % blocks * kBlock, last = std::min(columns_, first + kBlock);
        const float* source = in + task / blocks * rows_ * columns_;
        float* target = out + task / blocks * rows_ * columns_;
        for (std::int64_t r0 = 0; r0 < rows_; r0 += kBlock) {
          const std::int64_t r1 = std::min(rows_, r0 + kBlock);
          for (std::int64_t c = first; c < last; ++c)
            for (std::int64_t r = r0; r < r1; ++r) target[c * rows_ + r] = source[r * columns_ + c];
        }
        if (rounding_ != Rounding::kNone) {
          float* piece = target + first * rows_;
          round_array(piece, piece, static_cast<std::size_t>((last - first) * rows_), rounding_);
        }
      }
    });
  }

 private:
  const std::int64_t batch_, rows_, columns_;
  const Rounding rounding_;
};

}  // namespace

std::unique_ptr<Kernel> make_reorder_kernel(const Shape& shape, Layout to, Rounding rounding) {
  std::int64_t spatial = 1;
  for (std::size_t d = 2; d < shape.size(); ++d) spatial *= shape[d];
  if (to == Layout::kChannelsLast) return std::make_unique<ReorderKernel>(shape[0], shape[1], spatial, rounding);
  return std::make_unique<ReorderKernel>(shape[0], spatial, shape[1], rounding);
}

}  // namespace ulpscope::cpu
