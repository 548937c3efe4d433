#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/program_kernels.h"
#include "backend/cpu/thread_memory.h"
#include "backend/prepared_constants.h"
#include "core/parallel.h"
#include "ops/contraction/packed_weights.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

// Inputs.
constexpr std::size_t kCodes = 1, kScales = 2, kZeroPoints = 3, kBias = 5;
constexpr Index kFewRows = 3;  ///< So few take less time where the weights are unpacked in the order of their codes.

Tensor given(std::span<const Tensor* const> inputs, std::size_t i) {
  return i < inputs.size() && inputs[i] != nullptr ? *inputs[i] : Tensor();
}

class NBitsProduct final : public Kernel {
 public:
  NBitsProduct(const ops::PackedWeights& weights, std::unique_ptr<Kernel> reference, Rounding rounding)
      : w_(weights), reference_(std::move(reference)), rounding_(rounding) {}

  std::string name() const override { return fmt::format("packed product of codes, {}", program_kernels().name); }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    const Index m = w_.n == 0 ? 0 : outputs[0]->size() / w_.n;
    if (m <= kFewRows || w_.k == 0 || inputs[0]->type() != DataType::kFloat32 ||
        outputs[0]->type() != DataType::kFloat32)
      return reference_->run(inputs, outputs);
    const ops::PackedRows<float> rows(w_, *inputs[kCodes], *inputs[kScales], given(inputs, kZeroPoints));
    const Tensor bias = given(inputs, kBias) ? given(inputs, kBias).cast(DataType::kFloat32) : Tensor();
    ProductPart part{};
    part.a = inputs[0]->data<float>();
    part.a_stride = part.k = w_.k;
    part.bias = bias ? bias.data<float>() : nullptr;
    part.out = outputs[0]->data<float>();
    part.out_stride = w_.n;
    part.rows = m;
    const Index panel = program_kernels().product.panel;
    parallel_for((w_.n + panel - 1) / panel, std::max<Index>(1, (1 << 16) / (w_.k * panel)),
                 [&](Index begin, Index end) { multiply(rows, begin * panel, std::min(end * panel, w_.n), part); });
    round_parallel(part.out, part.out, outputs[0]->size(), rounding_);
  }

 private:
  /// Columns [begin, end): as many at a time as the second-level cache holds beside rows of a.
  void multiply(const ops::PackedRows<float>& rows, Index begin, Index end, const ProductPart& whole) const {
    constexpr Index kElements = 1 << 16, kRows = 48;
    const Index panel = program_kernels().product.panel;
    const Index step = std::max<Index>(1, kElements / (w_.k * panel)) * panel;
    thread_local ThreadMemory memory;
    for (Index column = begin; column < end; column += step) {
      const Index last = std::min(column + step, end);
      float* const packed = memory.floats(static_cast<std::size_t>((last - column + panel) * w_.k));
      for (Index c = column; c < last; c += panel)
        pack(rows, c, std::min(panel, last - c), packed + (c - column) * w_.k);
      ProductPart part = whole;
      part.b = packed;
      part.columns = last - column;
      if (whole.bias != nullptr) part.bias = whole.bias + column;
      for (Index row = 0; row < whole.rows; row += kRows) {
        part.a = whole.a + row * part.a_stride;
        part.out = whole.out + row * part.out_stride + column;
        part.rows = std::min(kRows, whole.rows - row);
        program_kernels().product.multiply(part);
      }
    }
  }

  /// A panel of columns, as ProductPart::b wants it.
  void pack(const ops::PackedRows<float>& rows, Index column, Index columns, float* to) const {
    constexpr Index kDepth = 256, kLine = 16;
    const ProductKernels& kernels = program_kernels().product;
    const Index stored = (columns + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
    if (columns < stored) std::fill_n(to, w_.k * stored, 0.0f);
    const Index step = std::max<Index>(1, kDepth / w_.block), blocks = w_.blocks();
    const Index stride = std::min(step * w_.block, w_.k) + kLine;
    thread_local ThreadMemory memory;
    float* const unpacked = memory.floats(static_cast<std::size_t>(columns * stride));
    for (Index b = 0; b < blocks; b += step) {
      const Index first = b * w_.block, count = std::min(step * w_.block, w_.k - first);
      for (Index c = 0; c < columns; ++c) rows.read(column + c, b, std::min(b + step, blocks), unpacked + c * stride);
      kernels.transpose(unpacked, stride, columns, count, to + first * stored, stored);
    }
  }

  const ops::PackedWeights w_;
  const std::unique_ptr<Kernel> reference_;
  const Rounding rounding_;
};

}  // namespace

std::unique_ptr<Kernel> make_nbits_kernel(const Layer& layer, std::unique_ptr<Kernel> reference, Rounding rounding) {
  if (!ops::is_matmul_nbits(layer)) return reference;
  return std::make_unique<NBitsProduct>(ops::packed_weights_of(layer), std::move(reference), rounding);
}

}  // namespace ulpscope::cpu
