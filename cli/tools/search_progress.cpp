#include "tools/search_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "core/counted.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

constexpr std::chrono::seconds kBetweenLines(10);

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

SignalAt::SignalAt() {
  const char* const text = std::getenv("ULPSCOPE_SIGNAL_AT");
  int begin = 0;
  if (text == nullptr || std::sscanf(text, "%d:%d:%n", &signal_, &left_, &begin) != 2 || begin == 0) return;
  stage_ = text + begin;
}

void SignalAt::pass(const std::string& stage) {
  if (!stage_.empty() && stage == stage_ && --left_ == 0) std::raise(signal_);
}

SearchProgressLine::SearchProgressLine(double time_limit) : time_limit_(time_limit) {
  now_.stage = "starting";
  if (isatty(STDERR_FILENO) != 1)
    logging_ = std::jthread([this](const std::stop_token& stop) { log_now_and_then(stop); });
}

void SearchProgressLine::show(const SearchProgress& now) {
  signal_at_.pass(now.stage);
  const std::lock_guard lock(mutex_);
  if (now.stage != now_.stage) stage_start_ = Clock::now();
  now_ = now;
  progress_.show(text());
}

std::string SearchProgressLine::text() const {
  std::string text = now_.stage;
  double left = -1;
  if (now_.all > 0) {
    constexpr int kWidth = 20;
    const int filled = std::clamp(kWidth * now_.done / now_.all, 0, kWidth);
    text += fmt::format(" [{}{}] {}/{}", std::string(static_cast<std::size_t>(filled), '#'),
                        std::string(static_cast<std::size_t>(kWidth - filled), '.'), now_.done, now_.all);
    if (now_.done > 0) left = seconds_since(stage_start_) * (now_.all - now_.done) / now_.done;
  }
  if (now_.trials >= 0) text += " | " + counted(now_.trials, "trial");
  if (now_.best >= 0) text += ", best: " + counted(now_.best, "layer");
  if (time_limit_ > 0) {
    const double limit_left = std::max(0.0, time_limit_ - seconds_since(start_));
    left = left < 0 ? limit_left : std::min(left, limit_left);
  }
  text += fmt::format(" | {}", duration(seconds_since(start_)));
  if (left >= 0) text += fmt::format(", {} {} left", time_limit_ > 0 ? "at most" : "about", duration(left));
  return text;
}

/// Signals are for the threads that search.
void SearchProgressLine::log_now_and_then(const std::stop_token& stop) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (auto next = start_ + kBetweenLines;; next += kBetweenLines) {
    stopped_.wait_until(lock, stop, next, [] { return false; });
    if (stop.stop_requested()) return;
    log_info(text());
  }
}

}  // namespace ulpscope::cli
