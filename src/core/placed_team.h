// One core for each thread of a team, while it works.
#pragma once

#include <chrono>

#if defined(__linux__)
#include <sched.h>
#include <sys/types.h>

#include <vector>
#endif

namespace ulpscope {

/// Keeps the threads that this thread works with (num_threads() in core/parallel.h) on cores of their own while it
/// lives. Threads sleep while they wait for each other, and a kernel that wakes one likes to put it where the waking
/// one runs, above all in virtual machines, whose sleeping cores do not look idle to it; then two take turns on one
/// core next to an idle one, for tens of milliseconds. Their affinity is what it was when this ends. Does nothing where
/// the user places threads (OMP_PROC_BIND), and where fewer cores are left by other teams than there are threads.
class PlacedTeam {
 public:
  using Duration = std::chrono::steady_clock::duration;

  /// `expected`: how long it is going to live; short work is not worth it, nor is work never done before.
  explicit PlacedTeam(Duration expected);
  ~PlacedTeam();
  PlacedTeam(const PlacedTeam&) = delete;
  PlacedTeam& operator=(const PlacedTeam&) = delete;

  /// How long it has lived.
  Duration age() const noexcept { return std::chrono::steady_clock::now() - start_; }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
#if defined(__linux__)
  ::cpu_set_t allowed_;
  std::vector<::pid_t> placed_;
  std::vector<int> cores_;  ///< Where they are.
#endif
};

}  // namespace ulpscope
