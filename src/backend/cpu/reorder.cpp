#include "backend/cpu/reorder.h"

#include <array>
#include <vector>

#include "backend/prepared_constants.h"
#include "backend/strides.h"
#include "ops/movement.h"

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

  std::string name() const override { return "reorder"; }
  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const std::array<std::int64_t, 3> from{rows_ * columns_, 1, columns_}, to{rows_ * columns_, rows_, 1};
    float* out = outputs[0]->data<float>();
    ops::copy_strided(DataType::kFloat32, inputs[0]->raw(), from, out, to, {batch_, columns_, rows_});
    round_parallel(out, out, batch_ * rows_ * columns_, rounding_);
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
