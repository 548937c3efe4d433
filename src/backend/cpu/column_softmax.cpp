#include "backend/cpu/column_softmax.h"

#include <algorithm>

#include "backend/cpu/softmax_loops.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

/// Some columns at a time, turned into rows.
class ColumnSoftmax final : public Kernel {
 public:
  ColumnSoftmax(std::int64_t outer, std::int64_t length, std::int64_t inner, bool logarithm)
      : outer_(outer), length_(length), inner_(inner), logarithm_(logarithm) {}

  std::string name() const override { return "softmax of columns"; }

  void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const override {
    constexpr std::int64_t kColumns = 16;  // A line of memory.
    const std::int64_t blocks = (inner_ + kColumns - 1) / kColumns, tasks = outer_ * blocks;
    parallel_for(tasks, items_per_task(tasks, length_ * kColumns), [&](std::int64_t begin, std::int64_t end) {
      thread_local ThreadMemory memory;
      float* const rows = memory.floats(static_cast<std::size_t>((kColumns + 1) * length_));
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t column = task % blocks * kColumns, count = std::min(kColumns, inner_ - column);
        const std::int64_t at = task / blocks * length_ * inner_ + column;
        turn_(inputs[0]->data<float>() + at, inner_, length_, count, rows, length_);
        for (std::int64_t r = 0; r < count; ++r) {
          float* const row = rows + r * length_;
          logarithm_ ? loops_.log_softmax(row, length_, rows + kColumns * length_) : loops_.softmax(row, length_);
        }
        turn_(rows, length_, count, length_, outputs[0]->data<float>() + at, inner_);
      }
    });
  }

 private:
  const std::int64_t outer_, length_, inner_;
  const bool logarithm_;
  const SoftmaxLoops loops_;
  decltype(ProductKernels::transpose) const turn_ = program_kernels().product.transpose;
};

}  // namespace

std::unique_ptr<Kernel> make_column_softmax_kernel(std::int64_t outer, std::int64_t length, std::int64_t inner,
                                                   bool logarithm) {
  return std::make_unique<ColumnSoftmax>(outer, length, inner, logarithm);
}

}  // namespace ulpscope::cpu
