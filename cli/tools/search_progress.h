// How far a search or a conversion is, while it goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "console.h"
#include "ulpscope/search.h"

namespace ulpscope::cli {

/// Raises a signal at a named point of a search, for tests of how it ends: ULPSCOPE_SIGNAL_AT=NUMBER:COUNT:STAGE, when
/// the stage reports for the COUNT-th time.
class SignalAt {
 public:
  SignalAt();
  void pass(const std::string& stage);

 private:
  int signal_ = 0, left_ = 0;
  std::string stage_;
};

/// A line that is overwritten where stderr is a terminal; else a line of the log every ten seconds.
class SearchProgressLine {
 public:
  /// `time_limit`: seconds; 0: none.
  explicit SearchProgressLine(double time_limit);
  /// Fewer trials than none: what goes on makes none.
  void show(const SearchProgress& now);

 private:
  using Clock = std::chrono::steady_clock;
  std::string text() const;
  void log_now_and_then(const std::stop_token& stop);

  double time_limit_;
  SignalAt signal_at_;
  Progress progress_;
  Clock::time_point start_ = Clock::now(), stage_start_ = start_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  SearchProgress now_;
  std::jthread logging_;  ///< Ends before what it reads.
};

}  // namespace ulpscope::cli
