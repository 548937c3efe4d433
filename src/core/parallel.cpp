#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ulpscope {

#if defined(_OPENMP)
// One team of threads serves our kernels and oneDNN's: two pools that spin against each other would cost more than
// either saves. OpenMP keeps the team per calling thread.
void set_num_threads(int count) noexcept { omp_set_num_threads(count > 0 ? count : omp_get_num_procs()); }

int num_threads() noexcept { return omp_get_max_threads(); }
#else
namespace {
thread_local int chosen_threads = 0;
}

void set_num_threads(int count) noexcept { chosen_threads = count; }

int num_threads() noexcept {
  return chosen_threads > 0 ? chosen_threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
#endif

void detail::run_blocks(std::int64_t blocks, void (*call)(void*, std::int64_t), void* context) {
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), blocks));
  if (threads <= 1) {
    for (std::int64_t block = 0; block < blocks; ++block) call(context, block);
    return;
  }
#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t block = 0; block < blocks; ++block) call(context, block);
#else
  // ThreadSanitizer does not see the synchronization inside libgomp.
  std::atomic<std::int64_t> next{0};
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (std::int64_t block; (block = next.fetch_add(1)) < blocks;) call(context, block);
    });
#endif
}

}  // namespace ulpscope
