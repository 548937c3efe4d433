// Work split over threads, always into the same pieces: the result never depends on the number of threads.
#pragma once

#include <cstdint>
#include <functional>

namespace ulpscope {

/// Threads that parallel_for may use when called from this thread (also those of the kernel library). 0: one per core.
void set_num_threads(int count) noexcept;
int num_threads() noexcept;

namespace detail {
void run_blocks(std::int64_t blocks, void (*call)(void* context, std::int64_t block), void* context);
}

/// Calls function(begin, end) for consecutive ranges of `grain` indices (the last may be shorter) that cover
/// [0, count). The ranges depend on `count` and `grain` alone. Returns when all are done. `function` must not throw.
template <typename Function>
void parallel_for(std::int64_t count, std::int64_t grain, Function&& function) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  if (count <= grain) {
    function(std::int64_t{0}, count);
    return;
  }
  struct Context {
    std::remove_reference_t<Function>* function;
    std::int64_t count, grain;
  } context{&function, count, grain};
  detail::run_blocks((count + grain - 1) / grain,
                     [](void* raw, std::int64_t block) {
                       const Context& c = *static_cast<Context*>(raw);
                       const std::int64_t begin = block * c.grain;
                       (*c.function)(begin, begin + c.grain < c.count ? begin + c.grain : c.count);
                     },
                     &context);
}

}  // namespace ulpscope
