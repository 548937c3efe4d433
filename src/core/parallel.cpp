#include "core/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace ulpscope {

// One team of threads serves our kernels and oneDNN's: two pools that spin against each other would cost more than
// either saves. OpenMP keeps the team per calling thread.
void set_num_threads(int count) noexcept { omp_set_num_threads(count > 0 ? count : omp_get_num_procs()); }

int num_threads() noexcept { return omp_get_max_threads(); }

void detail::run_blocks(std::int64_t blocks, void (*call)(void*, std::int64_t), void* context) {
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), blocks));
  if (threads <= 1) {
    for (std::int64_t block = 0; block < blocks; ++block) call(context, block);
    return;
  }
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not see the synchronisation inside libgomp.
  std::atomic<std::int64_t> next{0};
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&] {
      for (std::int64_t block; (block = next.fetch_add(1)) < blocks;) call(context, block);
    });
#else
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t block = 0; block < blocks; ++block) call(context, block);
#endif
}

}  // namespace ulpscope
