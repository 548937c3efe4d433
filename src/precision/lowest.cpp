#include "precision/lowest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/counted.h"
#include "precision/shell_word.h"

namespace ulpscope {
namespace {

using json::Json;
using json::Reader;

constexpr double kNoticeable = 1.01;

bool is_for_time(const KeptLayer& layer) { return layer.reason.kind == ReasonKind::kFaster; }
bool is_requested(const KeptLayer& layer) { return layer.reason.kind == ReasonKind::kRequested; }

/// Layers that stay for accuracy, as far as the search decided it.
std::ptrdiff_t accurate_layers(const Answer& answer) {
  return std::ranges::count_if(answer.kept,
                               [](const KeptLayer& layer) { return !is_for_time(layer) && !is_requested(layer); });
}

/// "FP16", "INT8 or FP16": the lowest first, as they were asked for.
std::string types_of(const AnswerFile& file) {
  std::string text = fmt::format("{}", fmt::join(file.precisions, " or "));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (text.substr(begin, end - begin) != "or")
      std::transform(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
                     text.begin() + static_cast<std::ptrdiff_t>(begin),
                     [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    begin = end + 1;
  }
  return text;
}

std::string where(const Judgement& judgement) {
  std::string text;
  if (!judgement.worst_output.empty()) text += fmt::format(" at output '{}'", judgement.worst_output);
  if (judgement.worst_sample >= 0) text += fmt::format(" of sample {}", judgement.worst_sample);
  return text;
}

/// What fails on the samples of the search, and where.
std::string failure_text(const Answer::Lowest& lowest) {
  const Judgement& judgement = lowest.judgement;
  std::string text = "fails: ";
  if (!judgement.problem.empty())
    text += judgement.problem;
  else if (std::isfinite(judgement.used))
    text += fmt::format("{:.3g} of the tolerance{}", judgement.used, where(judgement));
  else
    text += "beyond any tolerance" + where(judgement);
  const auto first = std::ranges::find(judgement.outputs, lowest.first_output, &Judgement::OutputError::output);
  if (first != judgement.outputs.end() && lowest.first_output != judgement.worst_output &&
      judgement.problem.find("'" + lowest.first_output + "'") == std::string::npos)
    text += fmt::format("; the first output that fails is '{}' ({:.3g} of the tolerance)", first->output, first->used);
  if (!lowest.layer.empty())
    text += fmt::format("; the first infinity or NaN comes from '{}' ({})", lowest.layer, lowest.op);
  return text;
}

/// Of everything low by itself.
std::string verdict_text(const Answer& answer) {
  const Answer::Lowest& lowest = *answer.lowest;
  if (!lowest.judgement.passed()) return failure_text(lowest);
  const double used = lowest.held_out ? std::max(lowest.judgement.used, lowest.held_out->used) : lowest.judgement.used;
  if (lowest.passed()) {
    std::string text = fmt::format("{:.3g} of the tolerance, passes on {}", used,
                                   counted(lowest.samples + lowest.held_out_samples, "sample"));
    if (lowest.held_out) return text + fmt::format(" ({} of them held out)", lowest.held_out_samples);
    if (answer.held_out_samples > 0) text += " of the search; the others were not tried";
    return text;
  }
  std::string text = fmt::format("{:.3g} of the tolerance on the {} of the search, fails on ", lowest.judgement.used,
                                 counted(lowest.samples, "sample"));
  text += lowest.held_out_passed > 0 ? fmt::format("{} of {} others", lowest.held_out_samples - lowest.held_out_passed,
                                                   lowest.held_out_samples)
                                     : fmt::format("{} others", lowest.held_out_samples);
  return text + fmt::format(" ({})", lowest.held_out->problem.empty()
                                         ? fmt::format("{:.3g} of it", lowest.held_out->used)
                                         : lowest.held_out->problem);
}

/// What keeps layers high all the same, or what makes it pass.
std::string rest_of_text(const AnswerFile& file, const std::string& command) {
  const Answer& answer = file.answer;
  const Answer::Lowest& lowest = *answer.lowest;
  if (only_margin_keeps(answer)) {
    const auto layers = accurate_layers(answer);
    return fmt::format(
        "\nOnly the margin speaks against it: {:.3g} of the tolerance is more than the {:.3g} that the search aimed "
        "at, so that other data pass, too; {} {} for that.\n    All of them low: {}\n"
        "    Or: more samples, which tell the margin better; or keep the layers.",
        lowest.judgement.used, answer.margin, counted(layers, "layer"), layers == 1 ? "stays" : "stay",
        command.empty() ? "search with --margin 1 (margin=1 in Python)" : command);
  }
  const auto for_time = std::ranges::count_if(answer.kept, is_for_time);
  if (lowest.passed() && for_time > 0 && accurate_layers(answer) == 0)
    return fmt::format("; {} {} higher for time alone", counted(for_time, "layer"), for_time == 1 ? "stays" : "stay");
  if (!lowest.passed() && answer.verdict == Answer::Verdict::kFound && accurate_layers(answer) == 0 &&
      !answer.repairs.empty())
    return fmt::format("; with the repairs below it passes ({:.3g} of the tolerance)", answer.search.used);
  return "";
}

bool is_option_of(const std::string& word, const std::string& option) {
  return word == option || word.starts_with(option + "=");
}

/// Words that search like this answer's, as far as its file says.
std::vector<std::string> words_of(const AnswerFile& file) {
  if (file.inputs.empty() || file.model.empty()) return {};
  std::vector<std::string> words{"precision", "search", file.model};
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    words.emplace_back(option);
    words.insert(words.end(), values.begin(), values.end());
  };
  for (const std::string& precision : file.precisions) words.push_back("--" + precision);
  if (file.answer.objective) add("--objective", {std::string(name_of(*file.answer.objective))});
  if (!file.calibration_cache.empty()) add("--calibration-cache", {file.calibration_cache});
  if (!file.build.target.empty()) add("--target", {file.build.target});
  for (const BuildRecord::Change& each : file.build.changes) add(each.option.c_str(), each.values);
  add("--load-inputs", file.inputs);
  if (!file.golden.empty()) add("--golden", {file.golden});
  words.insert(words.end(), file.criterion_options.begin(), file.criterion_options.end());
  return words;
}

/// All of it: `command` searches without a margin.
std::string full_text(const AnswerFile& file, const std::string& command) {
  const Answer& answer = file.answer;
  if (!answer.lowest) return "";
  std::string text = "All in " + types_of(file);
  if (const auto asked = std::ranges::count_if(answer.kept, is_requested); asked > 0)
    text += fmt::format(", but for {} that {} asked to stay", counted(asked, "layer"), asked == 1 ? "was" : "were");
  return text + ": " + verdict_text(answer) + rest_of_text(file, command);
}

std::string command_of(const std::vector<std::string>& words, const ChangedOptions& changed) {
  if (words.empty()) return "";
  std::string text = "ulpscope";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto other =
        std::ranges::find_if(changed, [&](const auto& each) { return is_option_of(words[i], each.first); });
    if (other == changed.end())
      text += " " + shell_word(words[i]);
    else if (words[i] == other->first)
      ++i;  // Its value.
  }
  for (const auto& [option, value] : changed) text.append(" ").append(option).append(" ").append(shell_word(value));
  return text;
}

const ChangedOptions& no_margin() {
  static const ChangedOptions changed{{"--margin", "1"}};
  return changed;
}

}  // namespace

std::string search_command(const AnswerFile& file, const ChangedOptions& changed) {
  return command_of(file.command.empty() ? words_of(file) : file.command, changed);
}

std::string lowest_text(const AnswerFile& file) { return full_text(file, search_command(file, no_margin())); }

bool is_slower_than_highest(const Answer& answer) noexcept {
  return answer.time_high_us > 0 && answer.time_us > kNoticeable * answer.time_high_us;
}

std::string slower_text(const AnswerFile& file) {
  const Answer& answer = file.answer;
  if (answer.verdict != Answer::Verdict::kFound || answer.kept.empty()) return "";
  const bool high = is_slower_than_highest(answer),
             low = only_margin_keeps(answer) && answer.time_us > kNoticeable * answer.time_low_us;
  if (!high && !low) return "";
  const auto set = std::ranges::find(answer.sets, Objective::kFastest, &Answer::ProvenSet::objective);
  const bool is_proven = set != answer.sets.end() &&
                         answer.time_us > kNoticeable * answer.trials[static_cast<std::size_t>(set->trial)].time_us;
  // What was chosen for the least time is compared with itself under another rule: no command finds a faster one.
  const bool launches = high && !is_proven && answer.objective == Objective::kFastest;
  std::string text = fmt::format("{} estimated slower ({:.3g} us on {}) than ",
                                 launches ? "With the launches of its casts, the answer is" : "The answer is",
                                 answer.time_us, answer.target);
  if (high) text += fmt::format("everything in the highest precision ({:.3g} us)", answer.time_high_us);
  if (low)
    text += fmt::format("{}everything in {} ({:.3g} us), which passes but for the margin", high ? " and " : "",
                        types_of(file), answer.time_low_us);
  if (launches)
    text +=
        "; the least time was looked for without these launches, since engines hide most of them. Where they count, "
        "the model as it is is the faster one (`ulpscope target measure` tells, on the GPU that it is for)";
  else
    text += ": casts at the borders of kept layers take time";
  std::vector<std::string> ways;
  if (low) ways.push_back(search_command(file, no_margin()));
  if (high && is_proven)
    ways.push_back(file.command.empty() || file.path.empty() || file.model.empty()
                       ? std::string("--objective fastest (objective=\"fastest\" in Python)")
                       : fmt::format("ulpscope convert {} --answer {} --objective fastest -o {}",
                                     shell_word(file.model), shell_word(file.path.string()),
                                     shell_word(std::filesystem::path(file.path).replace_extension(".fastest.onnx"))));
  else if (high && !launches)
    ways.push_back(search_command(file, {{"--objective", "fastest"}}));
  std::erase(ways, "");
  return ways.empty() ? text : fmt::format("{}. For the faster one:\n    {}", text, fmt::join(ways, "\n    "));
}

bool only_margin_keeps(const Answer& answer) noexcept {
  if (!answer.lowest || answer.verdict != Answer::Verdict::kFound) return false;
  const Answer::Lowest& lowest = *answer.lowest;
  const bool all_tried = lowest.held_out || answer.held_out_samples + answer.validation_samples == 0;
  return all_tried && lowest.passed() && lowest.judgement.used > answer.margin && accurate_layers(answer) > 0;
}

namespace json {

Json from_lowest(const AnswerFile& file) {
  const Answer& answer = file.answer;
  if (!answer.lowest) return {};
  const Answer::Lowest& lowest = *answer.lowest;
  Json result = from_judgement(lowest.judgement), layer, held_out;
  if (lowest.held_out) {
    held_out = from_judgement(*lowest.held_out);
    held_out["samples"] = lowest.held_out_samples;
    held_out["passed"] = lowest.held_out_passed;
  }
  if (!lowest.layer.empty()) layer = {{"name", lowest.layer}, {"op", lowest.op}};
  // The same whatever was typed.
  result["text"] = full_text(file, command_of(words_of(file), no_margin()));
  result["samples"] = lowest.samples;
  result["passed"] = lowest.passed();
  result["only_margin"] = only_margin_keeps(answer);
  result["first_output"] = lowest.first_output.empty() ? Json() : Json(lowest.first_output);
  result["layer"] = std::move(layer);
  result["held_out"] = std::move(held_out);
  return result;
}

void read_lowest(const Reader& reader, Answer& answer) {
  if (!reader.has("lowest") || reader.at("lowest").is_null()) return;
  const Reader from = reader.at("lowest");
  Answer::Lowest& lowest = answer.lowest.emplace();
  lowest.judgement = to_judgement(from);
  lowest.samples = to_count(from.at("samples"));
  if (const Reader output = from.at("first_output"); !output.is_null()) lowest.first_output = output.text();
  if (const Reader layer = from.at("layer"); !layer.is_null()) {
    lowest.layer = layer.at("name").text();
    lowest.op = layer.at("op").text();
  }
  if (const Reader held_out = from.at("held_out"); !held_out.is_null()) {
    lowest.held_out = to_judgement(held_out);
    lowest.held_out_samples = to_count(held_out.at("samples"));
    lowest.held_out_passed = to_count(held_out.at("passed"));
  }
}

}  // namespace json

}  // namespace ulpscope
