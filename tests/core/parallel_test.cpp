#include "core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {
namespace {

TEST(Parallel, EveryIndexIsInOneRangeThatDoesNotDependOnThreads) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t count = random() % 300, grain = 1 + random() % 40;
    std::set<std::pair<std::int64_t, std::int64_t>> expected;
    for (std::int64_t begin = 0; begin < count; begin += grain) expected.emplace(begin, std::min(count, begin + grain));
    for (const int threads : {1, 2, 5}) {
      const ScopedThreads scoped(threads);
      std::set<std::pair<std::int64_t, std::int64_t>> ranges;
      std::mutex mutex;
      parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(ranges.emplace(begin, end).second);
      });
      EXPECT_EQ(ranges, expected) << count << " by " << grain << ", threads: " << threads;
    }
  }
}

// The first index of every thread in turn takes as long as all others together.
TEST(Parallel, NobodyWaitsForTheSlowestThread) {
  constexpr std::int64_t kCount = 12;
  const ScopedThreads scoped(2);
  for (const std::int64_t slow : {std::int64_t{0}, kCount / 2}) {
    std::atomic<std::int64_t> done = 0;
    parallel_each(kCount, 1, [&](std::int64_t i) {
      constexpr std::int64_t kPatience = 1 << 24;
      for (std::int64_t n = 0; i == slow && done < kCount - 1 && n < kPatience; ++n) std::this_thread::yield();
      if (i == slow) {
        EXPECT_EQ(done, kCount - 1);
      }
      ++done;
    });
    EXPECT_EQ(done, kCount);
  }
}

#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
// libgomp ends threads that a smaller team leaves over. Starting them anew costs some 10 us each.
TEST(Parallel, TheSameThreadsServeLoopsOfAllSizes) {
  constexpr int kThreads = 6;
  const ScopedThreads scoped(kThreads);
  std::set<::pid_t> seen;
  std::mutex mutex;
  for (int round = 0; round < 50; ++round)
    for (const std::int64_t count : {2, 6, 3, 40, 1, 5, 4}) {
      parallel_for(count, 1, [&](std::int64_t, std::int64_t) {
        const std::lock_guard lock(mutex);
        seen.insert(::gettid());
      });
    }
  EXPECT_LE(seen.size(), static_cast<std::size_t>(kThreads));
}

thread_local Tensor held;

/// Each of two threads keeps a large tensor until it ends; a process that hangs in fork() is ended.
[[noreturn]] void fork_beside_threads_with_tensors() {
  ::alarm(60);
  const ScopedThreads scoped(2);
  std::atomic<int> there = 0;
  parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    for (++there; there < 2;) std::this_thread::yield();
    held = Tensor(DataType::kFloat32, {1 << 24});
  });
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  ::_exit(0);
}

TEST(ParallelDeathTest, ThreadsThatHoldTensorsEndBeforeAFork) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fork_beside_threads_with_tensors(), ::testing::ExitedWithCode(0), "");
}
#endif

TEST(Parallel, TasksOfFewElementsAreNotShared) {
  EXPECT_EQ(items_per_task(0, 100), 0);
  EXPECT_EQ(items_per_task(16, 1024), 16);
  EXPECT_EQ(items_per_task(17, 1024), 4);
  EXPECT_EQ(items_per_task(std::int64_t{1} << 40, 1), 4096);
  EXPECT_EQ(items_per_task(1000, 0), 1000);
  EXPECT_EQ(items_per_task(2, std::int64_t{1} << 40), 1);
}

}  // namespace
}  // namespace ulpscope
