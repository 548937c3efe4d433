#include "tools/iterative_debug.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compare/log_levels.h"
#include "compare/results.h"
#include "console.h"
#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// 12 of "_N12" and "_N12_inputs"; -1 for what is no key of a try.
int index_of(const std::string& key) {
  if (!key.starts_with("_N")) return -1;
  const std::size_t end = std::min(key.find_first_not_of("0123456789", 2), key.size());
  if (end == 2 || end > 9 || (end < key.size() && key[end] != '_')) return -1;
  return std::stoi(key.substr(2, end - 2));
}

/// Removes a file at the end of a try.
class Removed {
 public:
  explicit Removed(std::string path) : path_(std::move(path)) {}
  ~Removed() {
    if (path_.empty()) return;
    std::error_code error;
    fs::remove(path_, error);
    if (error) log_warning("Could not clean up '{}': {}", path_, error.message());
  }
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;

 private:
  std::string path_;
};

/// Moves a file or folder; nothing half-moved is left under the new name.
void move(const fs::path& from, const fs::path& to) {
  const WritingFile writing;
  fs::create_directories(to.parent_path());
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  // Another file system.
  const fs::path temporary = to.parent_path() / (".moving-" + to.filename().string());
  fs::copy(from, temporary, fs::copy_options::recursive);
  fs::rename(temporary, to);
  fs::remove_all(from);
}

}  // namespace

DebugReplay load_debug_replay(const std::string& path) {
  const auto refuse = [&](const std::string& text) {
    throw invalid_file("[replay] '{}': {}; try a file that --save-debug-replay wrote", path, text);
  };
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) refuse("expected a debug replay (a JSON object), got something else");
  DebugReplay replay;
  for (const auto& [key, value] : json.items()) {
    const auto success = value.is_object() ? value.find("success") : value.end();
    if (index_of(key) < 0 || !value.is_object() || success == value.end() || !success->is_boolean())
      refuse(fmt::format("expected verdicts of tries (keys _N0, _N1, ... with `success`), got the key '{}'", key));
    replay.emplace_back(key, success->get<bool>());
  }
  return replay;
}

std::string debug_replay_to_json(const DebugReplay& replay) {
  Json json = Json::object();
  for (const auto& [key, success] : replay)
    json[key] = {{"state", Json::object()},
                 {"iteration_info", {{"iteration", index_of(key)}}},
                 {"success", success},
                 {"polygraphy_class", "IterationContext"}};
  return json.dump(4);
}

DebugIterations::DebugIterations(const ArtifactArgs& artifacts, const IterationArgs& iteration, bool writes_artifact)
    : artifacts_(artifacts), iteration_(iteration), writes_artifact_(writes_artifact) {
  std::error_code ignored;
  if (writes_artifact && fs::exists(iteration.artifact_path(), ignored))
    throw invalid_argument(
        "[debug] {} already exists, refusing to overwrite.\nPlease remove the file manually or specify a different "
        "path with `--intermediate-artifact`.",
        iteration.artifact_path());
  date_and_time_ = local_time("%m-%d-%y_%H-%M-%S");
  if (iteration.load_replay) replay_ = load_debug_replay(*iteration.load_replay);
}

void DebugIterations::save_replay(const std::string& suffix) const {
  fs::path path = iteration_.replay_path();
  path.replace_filename(path.stem().string() + suffix + path.extension().string());
  if (suffix.empty()) log_verbose("Saving debug replay to " + path.string());
  const WritingFile writing;
  write_file(path, debug_replay_to_json(replay_));
}

void DebugIterations::sort_artifacts(bool passed, const std::string& key) {
  for (const std::string& artifact : artifacts_.artifacts) {
    const fs::path from = artifact;
    const fs::path to = fs::path(artifacts_.folder.value_or("polygraphy_artifacts")) / (passed ? "good" : "bad") /
                        fmt::format("{}_{}{}{}", from.stem().string(), date_and_time_, key, from.extension().string());
    std::error_code ignored;
    if (!fs::exists(from, ignored)) {
      log_error("Artifact: {} does not exist, skipping.\nWas the artifact supposed to be generated?", artifact);
    } else if (fs::exists(to, ignored)) {
      log_error("Destination path: {} already exists.\nRefusing to overwrite. This artifact will be skipped!",
                to.string());
    } else {
      log_info("Moving {} to {}", artifact, to.string());
      try {
        move(from, to);
      } catch (const fs::filesystem_error& error) {
        throw error_of(ErrorCode::kIo, "[debug] cannot move '{}' to '{}': {}", artifact, to.string(),
                       error.code().message());
      }
    }
  }
}

bool DebugIterations::attempt(int remaining, const std::function<bool()>& make, const std::function<bool()>& check) {
  check_interrupted();
  const LogIndent indent;
  const int number = ++count_, index = tries_[phase_]++;
  log(kStartLevel, fmt::format("RUNNING | Iteration {} | Approximately {} iteration(s) remaining", number, remaining));
  const std::string key = fmt::format("_N{}{}", index, phase_);
  const auto start = std::chrono::steady_clock::now();
  bool passed = false;
  if (const auto known = std::ranges::find(replay_, key, &DebugReplay::value_type::first); known != replay_.end()) {
    passed = known->second;
    log_info("Loading iteration information from debug replay: success={}", passed ? "True" : "False");
  } else {
    const Removed artifact(writes_artifact_ && !iteration_.keep_artifact ? iteration_.artifact_path() : "");
    const bool made = make();
    std::optional<Removed> info;
    if (iteration_.info) {
      info.emplace(*iteration_.info);
      const WritingFile writing;
      write_file(*iteration_.info, Json{{"iteration", index}}.dump(4));
    }
    // A check that takes us down with it counts as failed, for who loads this file afterwards.
    const std::size_t place = replay_.size();
    replay_.emplace_back(key, false);
    save_replay("_skip_current");
    if (made) {
      passed = check();
      sort_artifacts(passed, key);
    }
    replay_[place].second = passed;
    save_replay("");
  }
  if (passed) ++passed_;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log(passed ? kFinishLevel : LogLevel::kError,
      fmt::format("{} | Iteration {} | Duration {:.6g}s", passed ? "PASSED" : "FAILED", number, seconds));
  return passed;
}

void DebugIterations::finish() const {
  // "100.0" and "50.0" as Polygraphy has them, and no more than two decimals.
  const double share = count_ == 0 ? 0.0 : static_cast<double>(passed_) / static_cast<double>(count_);
  log(kFinishLevel, fmt::format("Finished {} iteration(s) | Passed: {}/{} | Pass Rate: {}%", count_, passed_, count_,
                                python_float(std::round(share * 1e4) / 100)));
}

}  // namespace ulpscope::cli
