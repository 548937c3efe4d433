// Work split over threads, always into the same pieces: no result depends on how many threads there are, or how fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace ulpscope {

/// So many threads serve no machine, and systems that do not give them end the program.
inline constexpr int kMaxThreads = 1024;

/// What somebody asked for, 0 (one per core) to kMaxThreads. Throws Error(kInvalidArgument) with what `where` names.
int checked_threads(std::int64_t count, std::string_view where);

/// Threads that parallel_for may use when called from this thread (also those of the kernel library). 0: one per core.
void set_num_threads(int count) noexcept;
int num_threads() noexcept;

/// Uses so many threads, also of libraries, while it lives.
class ScopedThreads {
 public:
  explicit ScopedThreads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~ScopedThreads() { set_num_threads(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  const int before_;
};

/// How this thread's threads are shared out among independent tasks.
struct ThreadShare {
  int tasks = 1;    ///< At a time.
  int threads = 1;  ///< For each of them.
};

/// As many tasks at a time as there are threads for, and as `budget` bytes hold at `bytes` each; one at least.
ThreadShare share_threads(std::size_t count, std::size_t bytes, std::size_t budget) noexcept;

/// Calls task(index) for the indices from `first` below `last`, which start in order, some at a time; each may use its
/// share of the threads. This thread is one of those that call them, and before each of its own calls `before`. Once
/// something throws, nothing more starts; then the exception of the lowest index is thrown, or that of `before`.
void run_tasks(std::size_t first, std::size_t last, const ThreadShare& share,
               const std::function<void(std::size_t)>& task, const std::function<void()>& before = {});

/// How many of `count` items of so many elements one task of parallel_for takes: some thousands of elements, which are
/// worth a thread's while; all of them, where they are too few to wait for other threads.
constexpr std::int64_t items_per_task(std::int64_t count, std::int64_t elements) noexcept {
  constexpr std::int64_t kAlone = 1 << 14, kTask = 1 << 12;
  elements = elements < 1 ? 1 : elements;
  if (count <= kAlone / elements) return count;
  return elements < kTask ? kTask / elements : 1;
}

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

/// Calls function(index) for each index below `count`, `grain` of them in order on one thread.
template <typename Function>
void parallel_each(std::int64_t count, std::int64_t grain, Function&& function) {
  parallel_for(count, grain, [&function](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) function(i);
  });
}
/// The same for places in a list, one at a time.
template <typename Function>
void parallel_each(std::size_t count, Function&& function) {
  parallel_each(static_cast<std::int64_t>(count), 1,
                [&function](std::int64_t i) { function(static_cast<std::size_t>(i)); });
}

}  // namespace ulpscope
