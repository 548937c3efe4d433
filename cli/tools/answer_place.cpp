#include "tools/answer_place.h"

#include <fmt/format.h>

#include <optional>
#include <tuple>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

/// The found answer at this path; nothing where there is none.
std::optional<AnswerFile> found_answer(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    AnswerFile file = read_answer(path);
    if (file.answer.verdict == Answer::Verdict::kFound) return file;
  } catch (const Error&) {  // No answer, or a damaged one.
  }
  return std::nullopt;
}

auto question_of(const AnswerFile& file) {
  return std::tie(file.answer.criterion, file.answer.objective, file.precisions, file.fusion, file.inputs, file.golden);
}

/// Why what is there stays; empty: it may be replaced.
std::string why_it_stays(const std::filesystem::path& path, const AnswerFile& file, bool named_by_user) {
  const std::optional<AnswerFile> there = found_answer(path);
  if (!there) return "";
  if (file.answer.verdict != Answer::Verdict::kFound)
    return fmt::format("holds a found answer, and this one is '{}'", name_of(file.answer.verdict));
  if (there->model_hash != file.model_hash || there->external_hash != file.external_hash)
    return fmt::format("is the answer for another model, '{}'", there->model);
  if (!named_by_user && question_of(*there) != question_of(file))
    return fmt::format("is the answer of another search ({})", there->answer.criterion);
  return "";
}

}  // namespace

std::filesystem::path place_for(const AnswerFile& file, bool named_by_user) {
  std::filesystem::path path = file.path;
  std::string why;
  const bool found = file.answer.verdict == Answer::Verdict::kFound;
  for (int number = found ? 2 : 1;; ++number) {
    const std::string reason = why_it_stays(path, file, named_by_user);
    if (reason.empty()) break;
    if (why.empty()) why = reason;
    std::string label = found ? "" : "." + std::string(name_of(file.answer.verdict));
    if (number > 1) label += fmt::format(".{}", number);
    path = file.path;
    path.replace_filename(file.path.stem().string() + label + file.path.extension().string());
  }
  if (!why.empty())
    log_warning("'{}' stays, since it {}: this one goes to '{}'", file.path.string(), why, path.string());
  return path;
}

}  // namespace ulpscope::cli
