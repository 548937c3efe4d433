#include "core/placed_team.h"

#include <gtest/gtest.h>

#include "core/parallel.h"

#if defined(_OPENMP) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace ulpscope {
namespace {

constexpr std::chrono::seconds kLong{1};

cpu_set_t allowed_cores(pid_t thread = 0) {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(thread, sizeof(cores), &cores), 0);
  return cores;
}

bool is_same(const cpu_set_t& a, const cpu_set_t& b) { return CPU_EQUAL(&a, &b) != 0; }

/// Of the team, each asked by itself.
template <typename Value, typename Function>
std::vector<Value> ask_team(int size, Function&& function) {
  std::vector<Value> values(static_cast<std::size_t>(size));
#pragma omp parallel num_threads(size)
  values[static_cast<std::size_t>(omp_get_thread_num())] = function();
  return values;
}

TEST(PlacedTeam, EachThreadHasACoreOfItsOwnAndGetsItsFreedomBack) {
  const cpu_set_t before = allowed_cores();
  const int size = CPU_COUNT(&before);
  if (size < 2) GTEST_SKIP() << "one core";
  const ScopedThreads threads(size);
  const auto masks = [&] { return ask_team<cpu_set_t>(size, [] { return allowed_cores(); }); };
  for (int round = 0; round < 20; ++round) {
    {
      const PlacedTeam team(kLong);
      for (const cpu_set_t& mask : masks()) EXPECT_EQ(CPU_COUNT(&mask), 1);
      const std::vector<int> cores = ask_team<int>(size, [] { return sched_getcpu(); });
      EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), static_cast<std::size_t>(size));
      for (const int core : cores) EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(core), &before));
    }
    for (const cpu_set_t& mask : masks()) EXPECT_TRUE(is_same(mask, before));
  }
}

TEST(PlacedTeam, TeamsSideBySideTakeNoCoreFromEachOther) {
  const cpu_set_t before = allowed_cores();
  const int size = CPU_COUNT(&before);
  if (size < 2) GTEST_SKIP() << "one core";
  std::latch placed(1), looked(1);
  // Begun first: a thread inherits where its maker may go.
  std::jthread other([&] {
    placed.wait();
    {
      const ScopedThreads threads(2);
      const PlacedTeam team(kLong);
      EXPECT_TRUE(is_same(allowed_cores(), before)) << "no core is left";
    }
    looked.count_down();
  });
  const ScopedThreads threads(size);
  {
    const PlacedTeam team(kLong);
    placed.count_down();
    looked.wait();
  }
  const PlacedTeam again(kLong);
  const cpu_set_t own = allowed_cores();
  EXPECT_EQ(CPU_COUNT(&own), 1);
}

TEST(PlacedTeam, ThreadsThatMayGoToOneCoreOnlyAreLeftAlone) {
  const cpu_set_t before = allowed_cores();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  {
    const ScopedThreads threads(3);
    const PlacedTeam team(kLong);
    EXPECT_TRUE(is_same(allowed_cores(), one));
  }
  EXPECT_TRUE(is_same(allowed_cores(), one));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(PlacedTeam, ShortWorkAndWorkInsideOfOtherWorkIsNotPlaced) {
  const cpu_set_t before = allowed_cores();
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one core";
  const ScopedThreads threads(2);
  const PlacedTeam brief(std::chrono::microseconds(10));
  EXPECT_TRUE(is_same(allowed_cores(), before));
  const PlacedTeam team(kLong);
  const cpu_set_t placed = allowed_cores();
  EXPECT_EQ(CPU_COUNT(&placed), 1);
  { const PlacedTeam inner(kLong); }
  EXPECT_TRUE(is_same(allowed_cores(), placed));
}

}  // namespace
}  // namespace ulpscope
#endif
