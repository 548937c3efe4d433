#include "precision/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "core/file.h"
#include "core/messages.h"
#include "precision/trial_json.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using json::Json;

constexpr char kJournalFormat[] = "ulpscope-journal";
constexpr std::string_view kHashed = "xxh3:";  ///< What hashes of a fingerprint begin with.
constexpr int kVersion = 2;

std::string line_of(const Json& json) {
  // Names are whatever bytes the model has; those that are no UTF-8 are replaced rather than refused.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string header_line(const Fingerprint& fingerprint, const std::vector<std::string>& names) {
  Json made_for = Json::array();
  for (const auto& [name, value] : fingerprint) made_for.push_back({name, value});
  return line_of(
      {{"format", kJournalFormat}, {"version", kVersion}, {"made_for", std::move(made_for)}, {"names", names}});
}

std::string key_of(TrialKind kind, const RaisedLayers::Marks& marks, const std::vector<std::string>& repairs,
                   int joined, int validation) {
  // Those of the search are all on the same samples.
  std::string key =
      is_held_out(kind) ? fmt::format("{} {} {}", name_of(kind), joined, validation) : fmt::format("search {}", joined);
  for (const std::string& repair : repairs) key += 'r' + std::to_string(repair.size()) + ':' + repair;
  key += 'l';
  key.append(marks.begin(), marks.end());
  return key;
}

double rounded(double value, int digits) { return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr); }

/// As the file keeps it: what is only shown needs few digits, and of what fails only the worst outputs.
Trial shortened(Trial trial) {
  constexpr std::size_t kFailing = 3;
  constexpr int kDigits = 6, kFewDigits = 4;
  Judgement& judgement = trial.judgement;
  judgement.value = rounded(judgement.value, kDigits);
  auto& outputs = judgement.outputs;
  if (outputs.size() == 1) {
    outputs.front().value = rounded(outputs.front().value, kDigits);
  } else {
    if (outputs.size() > kFailing && !judgement.passed(trial.margin)) {
      std::ranges::stable_sort(outputs, std::greater(), [&](const auto& each) {
        return std::pair(each.output == judgement.worst_output, each.used);
      });
      outputs.resize(kFailing);
    }
    for (Judgement::OutputError& each : outputs) {
      each.used = rounded(each.used, kFewDigits);
      each.value = rounded(each.value, kFewDigits);
    }
  }
  for (double& used : trial.sample_used) used = rounded(used, kFewDigits);
  trial.time_us = rounded(trial.time_us, kDigits);
  trial.cost_share = rounded(trial.cost_share, kDigits);
  trial.seconds = rounded(trial.seconds, kFewDigits);
  return trial;
}

/// Throws unless the journal was made for `fingerprint`.
void check_fingerprint(const json::Reader& header, const Fingerprint& fingerprint, const std::string& where) {
  if (!header.has("format") || header.at("format").text() != kJournalFormat)
    throw invalid_file(where + ": expected a journal of `ulpscope precision search`, got other JSON");
  if (const std::int64_t version = header.at("version").integer(); version != kVersion)
    throw invalid_file("{}: expected version {} of the format, got {}; try without --continue to start anew", where,
                       kVersion, version);
  Fingerprint found;
  header.at("made_for").each([&](const json::Reader& pair) {
    std::vector<std::string> words;
    pair.each([&](const json::Reader& word) { words.push_back(word.text()); });
    if (words.size() != 2) pair.fail("a name and a value");
    found.emplace_back(words[0], words[1]);
  });
  const auto differ = [&](const std::string& name, const std::string& theirs, const std::string& ours) {
    throw invalid_argument(
        "{}: the journal is of another search: {}: expected {}, got {} in the journal; try the same options as before, "
        "another --journal, or no --continue to start anew",
        where, name, ours.empty() ? "nothing" : "'" + ours + "'", theirs.empty() ? "nothing" : "'" + theirs + "'");
  };
  const auto value_in = [](const Fingerprint& all, const std::string& wanted) -> std::string {
    for (const auto& [name, value] : all)
      if (name == wanted) return value;
    return {};
  };
  // What people chose comes first: a hash that differs because of that tells them nothing.
  for (const bool hashes : {false, true}) {
    const auto is_looked_at = [&](const std::string& ours, const std::string& theirs) {
      return ours != theirs && (ours.starts_with(kHashed) || theirs.starts_with(kHashed)) == hashes;
    };
    for (const auto& [name, value] : fingerprint)
      if (const std::string theirs = value_in(found, name); is_looked_at(value, theirs)) differ(name, theirs, value);
    for (const auto& [name, value] : found)
      if (const std::string ours = value_in(fingerprint, name); is_looked_at(ours, value)) differ(name, value, ours);
  }
}

[[noreturn]] void throw_io(const std::filesystem::path& path, const std::string& what) {
  throw error_of(ErrorCode::kIo, "[journal] '{}': {}; no further trial can be kept", path.string(), what);
}

/// Appends in one call, so that a line is there whole or, when the system stops in between, cut at the end.
void append(const std::filesystem::path& path, const std::string& line, std::uintmax_t expected_size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) throw_io(path, fmt::format("cannot open it for writing: {}", std::strerror(errno)));
  struct stat info {};
  std::string failed;
  if (::fstat(file, &info) != 0 || static_cast<std::uintmax_t>(info.st_size) != expected_size) {
    failed = fmt::format("expected {} bytes, got {}: another process writes to it", expected_size, info.st_size);
  } else {
    std::size_t done = 0;
    while (done < line.size()) {
      const ssize_t written = ::write(file, line.data() + done, line.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        failed = fmt::format("cannot write to it: {}", std::strerror(errno));
        // Without the part that got there, the journal is whole again.
        [[maybe_unused]] const int ignored = ::ftruncate(file, static_cast<off_t>(expected_size));
        break;
      }
      done += static_cast<std::size_t>(written);
    }
  }
  ::close(file);
  if (!failed.empty()) throw_io(path, failed);
}

}  // namespace

Journal::Journal() : coder_(std::make_unique<json::TrialCoder>()) {}
Journal::~Journal() = default;
Journal::Journal(Journal&&) noexcept = default;
Journal& Journal::operator=(Journal&&) noexcept = default;

Journal Journal::create(const std::filesystem::path& path, const Fingerprint& fingerprint,
                        const std::vector<std::string>& names) {
  Journal journal;
  *journal.coder_ = json::TrialCoder(names);
  journal.path_ = path;
  journal.pending_ = header_line(fingerprint, journal.coder_->names());
  return journal;
}

Journal Journal::resume(const std::filesystem::path& path, const Fingerprint& fingerprint,
                        const std::vector<std::string>& names) {
  Journal journal = create(path, fingerprint, names);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    log_info("[journal] there is no '{}' to continue: the search starts from the beginning", path.string());
    return journal;
  }
  const std::string content = read_file(path);
  std::size_t line_number = 0, start = 0, kept = 0;
  while (start < content.size()) {
    ++line_number;
    const std::size_t end = content.find('\n', start);
    const bool last = end == std::string::npos || end + 1 == content.size();
    const std::string_view text = std::string_view(content).substr(start, end == std::string::npos ? end : end - start);
    const std::string where = fmt::format("[journal] '{}', line {}", path.string(), line_number);
    Json line;
    const bool whole = end != std::string::npos && json::parse(text, line);
    if (!whole && last && (line_number > 1 || end == std::string::npos)) {
      if (line_number == 1 && !std::string_view(journal.pending_).starts_with(text.substr(0, 30)))
        throw invalid_file(where + ": expected a journal of `ulpscope precision search`");
      log_warning("{}: dropped, since it was not written to its end", where);
      break;
    }
    if (!whole)
      throw invalid_file("{}: expected a line of JSON; the journal is damaged, try without --continue to start anew",
                         where);
    const json::Reader reader(line, where);
    if (line_number == 1) {
      check_fingerprint(reader, fingerprint, where);
      *journal.coder_ = json::TrialCoder();
      journal.coder_->read_names(reader.at("names"));
    } else {
      Trial trial = journal.coder_->read(reader);
      journal.remember(std::move(trial), journal.coder_->latest());
    }
    start = kept = end + 1;
  }
  journal.resumed_ = journal.trials_.size();
  if (kept == 0) return journal;  // Not even the first line: started anew.
  if (kept != content.size()) {
    std::error_code failed;
    std::filesystem::resize_file(path, kept, failed);
    if (failed) throw_io(path, fmt::format("cannot cut its last line: {}", failed.message()));
  }
  journal.size_ = kept;
  journal.pending_.clear();
  return journal;
}

const Trial* Journal::find(TrialKind kind, const RaisedLayers& raised, const std::vector<std::string>& repairs,
                           int joined, int validation) const {
  const auto marks = coder_->marks_of(raised);
  if (!marks) return nullptr;
  const auto found = index_.find(key_of(kind, *marks, repairs, joined, validation));
  return found == index_.end() ? nullptr : &trials_[found->second];
}

void Journal::remember(Trial trial, const RaisedLayers::Marks& marks) {
  index_.emplace(key_of(trial.kind, marks, trial.repairs, trial.joined, trial.validation), trials_.size());
  trials_.push_back(std::move(trial));
}

void Journal::add(Trial trial) {
  trial = shortened(std::move(trial));
  const Json json = coder_->write(trial);
  if (!path_.empty()) {
    const std::string line = line_of(json);
    if (!pending_.empty()) {
      write_file(path_, pending_ + line);
      size_ = pending_.size() + line.size();
      pending_.clear();
    } else {
      append(path_, line, size_);
      size_ += line.size();
    }
  }
  remember(std::move(trial), coder_->latest());
}

}  // namespace ulpscope
