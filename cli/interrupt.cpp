#include "interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

std::atomic<int> signals{0};
std::atomic<int> writers{0};
std::atomic<int> patient{0};
int wake_pipe[2] = {-1, -1};

void on_signal(int) {
  signals.fetch_add(1);
  const char byte = 0;
  [[maybe_unused]] const auto written = write(wake_pipe[1], &byte, 1);
}

[[noreturn]] void end_now() {
  while (writers.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  constexpr std::string_view kMessage = "\n[!] Interrupted.\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kInterruptedStatus);
}

void watch() {
  char byte;
  while (read(wake_pipe[0], &byte, 1) < 0) {
  }
  for (int i = 0; (i < 50 || patient.load() > 0) && signals.load() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  end_now();
}

}  // namespace

void install_interrupt_handler() {
  if (pipe2(wake_pipe, O_CLOEXEC) != 0) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  // Not SA_RESTART: a call that waits for the worker shall notice.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::thread(watch).detach();
}

bool interrupted() noexcept { return signals.load() > 0; }

void check_interrupted() {
  if (interrupted()) throw Error(ErrorCode::kInterrupted, "Interrupted.");
}

WritingFile::WritingFile() noexcept { writers.fetch_add(1); }
WritingFile::~WritingFile() { writers.fetch_sub(1); }

DeferInterrupt::DeferInterrupt() noexcept { patient.fetch_add(1); }
DeferInterrupt::~DeferInterrupt() { patient.fetch_sub(1); }

}  // namespace ulpscope::cli
