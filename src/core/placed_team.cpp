#include "core/placed_team.h"

#include "core/parallel.h"

#if defined(_OPENMP) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace ulpscope {
namespace {

struct Member {
  ::pid_t thread = 0;
  int core = 0;  ///< Where it runs.
};

/// Wakes them all. Those that wake on the core of this thread, which would otherwise spin there, get it.
std::vector<Member> members_of_team(int size) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kPatience{200};
  const Clock::time_point end = Clock::now() + kPatience;
  std::vector<Member> members(static_cast<std::size_t>(size));
  std::atomic<int> arrived{0};
#pragma omp parallel num_threads(size)
  {
    const int index = omp_get_thread_num();
    members[static_cast<std::size_t>(index)] = {::gettid(), ::sched_getcpu()};
    arrived.fetch_add(1, std::memory_order_relaxed);
    while (index == 0 && arrived.load(std::memory_order_relaxed) < omp_get_num_threads() && Clock::now() < end)
      ::sched_yield();
  }
  return members;
}

/// The cores of all teams that live.
std::mutex placed_mutex;
::cpu_set_t placed_cores;

/// Gives those that are on none of the free cores, or share one with an earlier member, others of these: there are
/// enough.
void separate(std::vector<Member>& members, ::cpu_set_t free) {
  std::vector<Member*> sharing;
  for (Member& member : members) {
    if (member.core >= 0 && member.core < CPU_SETSIZE && CPU_ISSET(member.core, &free))
      CPU_CLR(member.core, &free);
    else
      sharing.push_back(&member);
  }
  for (int core = 0; core < CPU_SETSIZE && !sharing.empty(); ++core) {
    if (!CPU_ISSET(core, &free)) continue;
    sharing.back()->core = core;
    sharing.pop_back();
  }
}

}  // namespace

PlacedTeam::PlacedTeam(Duration expected) {
  constexpr std::chrono::microseconds kWorthIt{300};
  const int size = num_threads();
  if (size < 2 || expected < kWorthIt || omp_in_parallel() || omp_get_proc_bind() != omp_proc_bind_false) return;
  if (::sched_getaffinity(0, sizeof(allowed_), &allowed_) != 0 || CPU_COUNT(&allowed_) < size) return;
  std::vector<Member> members = members_of_team(size);
  const std::lock_guard lock(placed_mutex);
  ::cpu_set_t taken, free;
  CPU_AND(&taken, &allowed_, &placed_cores);
  CPU_XOR(&free, &allowed_, &taken);
  if (CPU_COUNT(&free) < size) return;
  separate(members, free);
  placed_.reserve(members.size());
  for (const Member& member : members) {
    CPU_SET(static_cast<std::size_t>(member.core), &placed_cores);
    cores_.push_back(member.core);
    ::cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(member.core), &one);
    ::sched_setaffinity(member.thread, sizeof(one), &one);
    placed_.push_back(member.thread);
  }
}

PlacedTeam::~PlacedTeam() {
  const std::lock_guard lock(placed_mutex);
  for (const int core : cores_) CPU_CLR(static_cast<std::size_t>(core), &placed_cores);
  for (const ::pid_t thread : placed_) ::sched_setaffinity(thread, sizeof(allowed_), &allowed_);
}

}  // namespace ulpscope
#else
namespace ulpscope {

PlacedTeam::PlacedTeam(Duration) {}
PlacedTeam::~PlacedTeam() = default;

}  // namespace ulpscope
#endif
