#include "backend/cuda/tactics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ranges>

#include "backend/cuda/kernel_cache.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {
namespace {

std::string file_name(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.'; }, '_');
  return "tactics-" + name + ".txt";
}

}  // namespace

TacticCache::TacticCache(const std::string& name) : name_(name), file_(file_name(name)) { merge(get_cached(file_)); }

/// Lines of key, algorithm and microseconds, separated by tabs. What is there already stays.
void TacticCache::merge(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    MeasuredTactic tactic{std::string(line.substr(first + 1, second - first - 1))};
    std::from_chars(line.data() + second + 1, line.data() + line.size(), tactic.microseconds);
    tactics_.emplace(line.substr(0, first), std::move(tactic));
  }
}

std::optional<MeasuredTactic> TacticCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = tactics_.find(key);
  return found == tactics_.end() ? std::nullopt : std::optional(found->second);
}

void TacticCache::put(const std::string& key, MeasuredTactic tactic) {
  const std::lock_guard lock(mutex_);
  MeasuredTactic& known = tactics_[key];
  if (known == tactic) return;
  known = std::move(tactic);
  changed_ = true;
}

TimingCache TacticCache::measured() const {
  const std::lock_guard lock(mutex_);
  return {{}, {}, {{name_, tactics_}}};
}

void TacticCache::take(const TimingCache& cache) {
  const auto found = cache.measured.find(name_);
  if (found == cache.measured.end()) {
    const auto devices = std::views::keys(cache.measured);
    return log_once(
        LogLevel::kWarning,
        fmt::format("[options] --load-timing-cache {} is ignored: expected tactics of '{}', got those of '{}'",
                    cache.source, name_, devices.empty() ? "nothing" : fmt::format("{}", fmt::join(devices, "', '"))));
  }
  for (const auto& [key, tactic] : found->second) put(key, tactic);
}

void TacticCache::save() {
  const std::lock_guard lock(mutex_);
  if (!changed_) return;
  changed_ = false;
  const CacheLock others;
  merge(get_cached(file_));
  std::string text;
  for (const auto& [key, tactic] : tactics_)
    text += fmt::format("{}\t{}\t{:.3f}\n", key, tactic.algorithm, tactic.microseconds);
  put_cached(file_, text);
}

}  // namespace ulpscope::cuda
