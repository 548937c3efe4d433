#include <algorithm>

#include "backend/cpu/layer_kernels.h"
#include "backend/cpu/softmax_loops.h"
#include "backend/cpu/thread_memory.h"
#include "core/parallel.h"

namespace ulpscope::cpu {

/// Some columns at a time, turned into rows.
std::unique_ptr<Kernel> make_column_softmax_kernel(std::int64_t outer, std::int64_t length, std::int64_t inner,
                                                   bool logarithm) {
  const auto turn = program_kernels().product.transpose;
  return make_kernel("softmax of columns", [=, loops = SoftmaxLoops()](Kernel::Inputs inputs, Kernel::Outputs outputs) {
    constexpr std::int64_t kColumns = 16;  // A line of memory.
    const std::int64_t blocks = (inner + kColumns - 1) / kColumns, tasks = outer * blocks;
    parallel_for(tasks, items_per_task(tasks, length * kColumns), [&](std::int64_t begin, std::int64_t end) {
      thread_local ThreadMemory memory;
      float* const rows = memory.floats(static_cast<std::size_t>((kColumns + 1) * length));
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t column = task % blocks * kColumns, count = std::min(kColumns, inner - column);
        const std::int64_t at = task / blocks * length * inner + column;
        turn(inputs[0]->data<float>() + at, inner, length, count, rows, length);
        for (std::int64_t r = 0; r < count; ++r) {
          float* const row = rows + r * length;
          logarithm ? loops.log_softmax(row, length, rows + kColumns * length) : loops.softmax(row, length);
        }
        turn(rows, length, count, length, outputs[0]->data<float>() + at, inner);
      }
    });
  });
}

}  // namespace ulpscope::cpu
