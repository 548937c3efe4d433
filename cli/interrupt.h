// Ctrl-C: an orderly end with exit status 130.
#pragma once

namespace ulpscope::cli {

inline constexpr int kInterruptedStatus = 130;

/// From now on SIGINT and SIGTERM ask for an end. Code that looks at `interrupted()` ends by itself; what takes longer
/// than half a second is ended from outside, but not while a file is being written. A second signal ends at once.
/// To be called before other threads start.
void install_interrupt_handler();

bool interrupted() noexcept;

/// Throws Error(kInterrupted) if an end was asked for.
void check_interrupted();

/// While one lives, a file is being written: the program is not ended from outside.
class WritingFile {
 public:
  WritingFile() noexcept;
  ~WritingFile();
  WritingFile(const WritingFile&) = delete;
  WritingFile& operator=(const WritingFile&) = delete;
};

/// While one lives, the first signal only sets `interrupted()`, however long the work takes that looks at it; a second
/// signal ends the program as always. For work that has something to hand over first.
class DeferInterrupt {
 public:
  DeferInterrupt() noexcept;
  ~DeferInterrupt();
  DeferInterrupt(const DeferInterrupt&) = delete;
  DeferInterrupt& operator=(const DeferInterrupt&) = delete;
};

}  // namespace ulpscope::cli
