// Calls that take long: without the GIL, with progress, and ended by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

namespace ulpscope::python {

/// Lives on the stack of one call from Python.
class LongCall {
 public:
  /// `progress`: a callable of (stage, done, all, trials, best), or None.
  explicit LongCall(nanobind::handle progress = nanobind::none());
  ~LongCall();
  LongCall(const LongCall&) = delete;
  LongCall& operator=(const LongCall&) = delete;

  /// Runs the work without the GIL. What Python raised meanwhile (a handler of a signal, a callable of the user) comes
  /// out as it is, whatever the library made of it; Ctrl-C as KeyboardInterrupt.
  template <typename Work>
  auto run(const Work& work) {
    try {
      const nanobind::gil_scoped_release no_gil;
      return work();
    } catch (...) {
      failed(std::current_exception());
    }
  }

  /// For the library to call in the thread of the call, as often as it likes: runs Python's handlers of signals. Throws
  /// SearchInterrupted after Ctrl-C, and what other handlers raise.
  void check();
  /// Runs `python` with the GIL, in any thread. Throws like check().
  void with_python(const std::function<void()>& python);
  /// check(), and tells `progress` with the GIL, where it is new or the last time is a while ago.
  void report(bool is_new, std::string_view stage, std::int64_t done, std::int64_t all, std::int64_t trials = 0,
              std::int64_t best = -1);

  bool interrupted() const noexcept { return interrupted_; }

  /// The call that this thread works for, or null.
  static LongCall* of_thread() noexcept;
  /// Whether the call of this thread is to end; for waits in the library.
  static bool should_end();

 private:
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void failed(const std::exception_ptr& error);

  const nanobind::handle progress_;
  Clock::time_point checked_, shown_;
  bool interrupted_ = false;
  std::exception_ptr raised_;  ///< By Python, and on its way through the library.
  LongCall* outer_;
};

}  // namespace ulpscope::python
