#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/messages.h"
#include "core/threads_at_fork.h"

#if defined(_OPENMP)
#include <omp.h>
#include <pthread.h>
#endif

namespace ulpscope {

int checked_threads(std::int64_t count, std::string_view where) {
  if (count >= 0 && count <= kMaxThreads) return static_cast<int>(count);
  throw invalid_argument("{}: expected 0 (one per core) to {}, got {}", where, kMaxThreads, count);
}

#if defined(_OPENMP)
// One team of threads serves our kernels and oneDNN's: two pools that spin against each other would cost more than
// either saves. OpenMP keeps the team per calling thread.
namespace {

/// The threads of a team do not live on in a forked process (multiprocessing, loaders of data), which would wait for
/// them forever: they end before, and whoever computes next starts others. A child that is forked in the middle of a
/// parallel loop computes with the thread that it has.
class AfterFork {
 public:
  AfterFork() noexcept {
    ::pthread_atfork([] { end_threads(); }, nullptr, [] { forget_team(); });
  }
  static void use_team() noexcept { has_team.store(true, std::memory_order_relaxed); }
  static bool is_alone() noexcept { return alone.load(std::memory_order_relaxed); }
  static void end_team() noexcept {
    if (has_team && omp_pause_resource_all(omp_pause_hard) == 0) has_team = false;
  }

 private:
  static void forget_team() noexcept {
    if (!has_team) return;
    alone = true;
    omp_set_num_threads(1);
  }
  static inline std::atomic<bool> has_team = false, alone = false;
};
const AfterFork after_fork;

}  // namespace

void end_threads() noexcept { AfterFork::end_team(); }

void set_num_threads(int count) noexcept {
  omp_set_num_threads(AfterFork::is_alone() ? 1 : count > 0 ? count : omp_get_num_procs());
}

int num_threads() noexcept {
  const int count = AfterFork::is_alone() ? 1 : omp_get_max_threads();
  if (count > 1) AfterFork::use_team();
  return count;
}
#else
namespace {
thread_local int chosen_threads = 0;
}

void set_num_threads(int count) noexcept { chosen_threads = count; }
void end_threads() noexcept {}

int num_threads() noexcept {
  return chosen_threads > 0 ? chosen_threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
#endif

ThreadShare share_threads(std::size_t count, std::size_t bytes, std::size_t budget) noexcept {
  const auto threads = static_cast<std::size_t>(num_threads());
  const std::size_t fitting = bytes == 0 ? threads : budget / bytes;
  const std::size_t tasks = std::max<std::size_t>(1, std::min({count, threads, fitting}));
  return {static_cast<int>(tasks), static_cast<int>(threads / tasks)};
}

namespace {

/// Hands out the indices of tasks, in order, until one fails.
class TaskQueue {
 public:
  TaskQueue(std::size_t first, std::size_t last) : next_(first), last_(last), failed_(last) {}

  /// `last` when there is none left.
  std::size_t take() {
    const std::lock_guard lock(mutex_);
    return next_ < last_ ? next_++ : last_;
  }
  /// Called while an exception is handled.
  void fail(std::size_t index) {
    const std::lock_guard lock(mutex_);
    next_ = last_;
    if (failure_ && index >= failed_) return;
    failed_ = index;
    failure_ = std::current_exception();
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return next_ >= last_;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::size_t next_;
  const std::size_t last_;
  std::size_t failed_;
  std::exception_ptr failure_;
};

}  // namespace

void run_tasks(std::size_t first, std::size_t last, const ThreadShare& share,
               const std::function<void(std::size_t)>& task, const std::function<void()>& before) {
  TaskQueue queue(first, last);
  const auto work = [&](const std::function<void()>& prepare) {
    const ScopedThreads threads(share.threads);
    while (!queue.is_empty()) {
      std::size_t index = last;  // What `before` throws comes after what tasks throw.
      try {
        if (prepare) prepare();
        index = queue.take();
        if (index < last) task(index);
      } catch (...) {
        queue.fail(index);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < share.tasks; ++t) others.emplace_back([&] { work({}); });
    work(before);
  }
  queue.rethrow();
}

namespace {

/// Blocks [0, count) in one range for each thread. A thread that is done takes from the end of what another one has
/// left: equal threads keep their shares, whose data are in their own caches, and nobody waits for a slow one.
class SharedBlocks {
 public:
  SharedBlocks(std::int64_t count, int threads) : ranges_(static_cast<std::size_t>(threads)) {
    for (std::int64_t t = 0; t < threads; ++t)
      ranges_[static_cast<std::size_t>(t)].ends = pack(count * t / threads, count * (t + 1) / threads);
  }
  /// What a thread does; those of a team that got smaller do all.
  void work(std::size_t thread, void (*call)(void*, std::int64_t), void* context) {
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      Range& range = ranges_[(thread + i) % ranges_.size()];
      for (std::int64_t block; (block = i == 0 ? range.take_first() : range.take_last()) >= 0;) call(context, block);
    }
  }

 private:
  static std::uint64_t pack(std::int64_t begin, std::int64_t end) {
    return static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end);
  }
  struct alignas(64) Range {  // A cache line each.
    std::atomic<std::uint64_t> ends;
    /// -1 when there is none left.
    std::int64_t take_first() { return take(std::uint64_t{1} << 32, true); }
    std::int64_t take_last() { return take(-std::uint64_t{1}, false); }

   private:
    std::int64_t take(std::uint64_t change, bool first) {
      std::uint64_t known = ends.load(std::memory_order_relaxed);
      while (known >> 32 < (known & UINT32_MAX))
        if (ends.compare_exchange_weak(known, known + change, std::memory_order_relaxed))
          return static_cast<std::int64_t>(first ? known >> 32 : (known & UINT32_MAX) - 1);
      return -1;
    }
  };
  std::vector<Range> ranges_;
};

}  // namespace

void detail::run_blocks(std::int64_t blocks, void (*call)(void*, std::int64_t), void* context) {
  const int team = num_threads(), threads = static_cast<int>(std::min<std::int64_t>(team, blocks));
  if (threads <= 1 || blocks > UINT32_MAX) {
    for (std::int64_t block = 0; block < blocks; ++block) call(context, block);
    return;
  }
  SharedBlocks shared(blocks, threads);
#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
  // Always the whole team, even for few blocks: libgomp ends the threads that a smaller team leaves over, and starts
  // them anew for the next larger one.
#pragma omp parallel num_threads(team)
  shared.work(static_cast<std::size_t>(omp_get_thread_num()), call, context);
#else
  // ThreadSanitizer does not see the synchronization inside libgomp.
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t)
    workers.emplace_back([&, t] { shared.work(static_cast<std::size_t>(t), call, context); });
#endif
}

}  // namespace ulpscope
