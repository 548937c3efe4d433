#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/counted.h"
#include "graph/layer_form.h"
#include "precision/lowest.h"
#include "precision/objective.h"
#include "precision/shell_word.h"
#include "ulpscope/answer.h"

namespace ulpscope {
namespace {

constexpr std::size_t kListed = 30;
constexpr std::size_t kFollowing = 8;
/// Beyond this the command is not printed: nobody reads it there, and the answer's file has it.
constexpr std::size_t kCommandLength = 2000;

std::string microseconds(double value) {
  if (value >= 1e6) return fmt::format("{:.3g} s", value * 1e-6);
  if (value >= 1e3) return fmt::format("{:.3g} ms", value * 1e-3);
  return fmt::format("{:.3g} us", value);
}

bool has_tolerance(const Answer& answer) { return !answer.bits || answer.bits->has_tolerance; }

/// "0.0031, 0.31 of the tolerance, at output 'y' of sample 2".
std::string error_line(const Answer& answer, const Judgement& judgement) {
  if (!judgement.problem.empty()) return judgement.problem;
  std::string text = fmt::format("{:.4g}", judgement.value);
  if (has_tolerance(answer))
    text += std::isfinite(judgement.used) ? fmt::format(", {:.3g} of the tolerance", judgement.used)
                                          : std::string(", beyond any tolerance");
  if (!judgement.worst_output.empty()) text += fmt::format(", at output '{}'", judgement.worst_output);
  if (judgement.worst_sample >= 0) text += fmt::format(" of sample {}", judgement.worst_sample);
  return text;
}

std::string layer_lines(const KeptLayer& layer) {
  const bool same = layer.nodes.empty() || (layer.nodes.size() == 1 && layer.nodes.front() == layer.name);
  std::string text = fmt::format("    {} ({}, {})", layer.name, layer.op, name_of(layer.precision));
  if (!same) text += fmt::format(", nodes {}", fmt::join(layer.nodes, ", "));
  // Sentences that begin with the kind need no other beginning.
  const std::string kind(name_of(layer.reason.kind));
  const std::string& why = layer.reason.text;
  text += "\n        " + (why.empty() ? kind : why.starts_with(kind) ? why : kind + ": " + why);
  return text;
}

/// How many layers have which format, and what other bits are predicted to give.
void append_formats(const Answer::Bits& bits, bool everything, std::string& out) {
  struct Sum {
    std::int64_t layers = 0, weights = 0, bits = 0;
  };
  std::map<std::pair<Precision, std::int64_t>, Sum> sums;
  for (const Answer::Bits::Layer& layer : bits.layers) {
    Sum& sum = sums[{layer.format, layer.block}];
    ++sum.layers;
    sum.weights += layer.weights;
    sum.bits += layer.bits;
  }
  out += "Formats of weights:\n";
  for (const auto& [key, sum] : sums)
    out += fmt::format("    {}{}: {}, {:.1f} % of the weights, {:.4g} bits each\n", name_of(key.first),
                       key.second > 0 ? fmt::format(" in blocks of {}", key.second) : "", counted(sum.layers, "layer"),
                       100.0 * static_cast<double>(sum.weights) / static_cast<double>(bits.weights()),
                       sum.weights > 0 ? static_cast<double>(sum.bits) / static_cast<double>(sum.weights) : 0);
  if (everything)
    for (const Answer::Bits::Layer& layer : bits.layers)
      out += fmt::format("    {} ({}), {} bits\n", layer.name, name_of(layer.format), layer.bits);
  if (bits.budget > 0) out += fmt::format("Budget: {:g} bits per weight\n", bits.budget);
  constexpr std::size_t kShown = 8;
  const std::size_t step = std::max<std::size_t>(1, bits.curve.size() / kShown);
  std::vector<std::string> points;
  for (std::size_t i = 0; i < bits.curve.size(); i += step)
    points.push_back(fmt::format("{:.3g}: {:.2g}", bits.curve[i].bits, bits.curve[i].used));
  out += fmt::format("Predicted {} at other bits per weight: {}\n",
                     bits.has_tolerance ? "shares of the tolerance" : "errors", fmt::join(points, ", "));
}

void append_layers(const Answer& answer, bool everything, std::string& out) {
  if (answer.bits) return append_formats(*answer.bits, everything, out);
  if (answer.kept.empty()) {
    out += "Layers to keep in higher precision: none.\n";
    return;
  }
  const auto asked = static_cast<std::size_t>(std::ranges::count_if(
      answer.kept, [](const KeptLayer& layer) { return layer.reason.kind == ReasonKind::kRequested; }));
  out +=
      fmt::format("Layers to keep in higher precision: {} of {}{}\n", answer.kept.size() - asked,
                  counted(answer.candidates, "candidate"),
                  asked == 0 ? "" : fmt::format(", and {} that {} asked to stay", asked, asked == 1 ? "was" : "were"));
  const std::size_t shown = everything ? answer.kept.size() : std::min(kListed, answer.kept.size());
  for (std::size_t i = 0; i < shown; ++i) out += layer_lines(answer.kept[i]) + "\n";
  if (shown < answer.kept.size())
    out += fmt::format("    ... and {} more (-v shows all; the saved answer has all)\n", answer.kept.size() - shown);
}

/// Repairs of one kind that were measured together share a line.
void append_gains(const Answer& answer, std::string& out) {
  std::set<std::tuple<std::size_t, double, double>> shown;
  for (const Repair& repair : answer.repairs)
    if (!std::isnan(repair.used_after) &&
        shown.emplace(repair.change.index(), repair.used_before, repair.used_after).second)
      out += fmt::format(
          "    With {}: the answer uses {:.3g} of the tolerance, {:.3g} without\n",
          std::holds_alternative<Equalize>(repair.change) ? "equalized channels" : fmt::format("'{}'", kind_of(repair)),
          repair.used_after, repair.used_before);
}

void append_others(const AnswerFile& file, bool everything, std::string& out) {
  const Answer& answer = file.answer;
  if (!answer.following.empty()) {
    const std::size_t shown = everything ? answer.following.size() : std::min(kFollowing, answer.following.size());
    out +=
        fmt::format("Movement layers that follow them, without arithmetic of their own: {}\n", answer.following.size());
    for (std::size_t i = 0; i < shown; ++i) out += fmt::format("    {}\n", answer.following[i]);
    if (shown < answer.following.size()) out += fmt::format("    ... and {} more\n", answer.following.size() - shown);
  }
  if (!answer.repairs.empty()) {
    out += fmt::format("Repairs, which cost no precision (a repaired layer does not count as kept): {}\n",
                       answer.repairs.size());
    const std::size_t shown = everything ? answer.repairs.size() : std::min(kListed, answer.repairs.size());
    for (std::size_t i = 0; i < shown; ++i) {
      const Repair& repair = answer.repairs[i];
      out += fmt::format("    {} '{}'", kind_of(repair), repair.name);
      if (!repair.text.empty()) out += ": " + repair.text;
      out += "\n";
    }
    append_gains(answer, out);
    if (shown < answer.repairs.size())
      out += fmt::format("    ... and {} more (-v shows all)\n", answer.repairs.size() - shown);
  }
}

/// Without failures among n samples that nothing was chosen by, the share p of failures is at most that for which
/// (1 - p)^n = 5 %: about 3 / n, the rule of three (Hanley and Lippman-Hand, 1983).
std::string worth(const Answer& answer) {
  if (!answer.held_out->passed()) return "";
  if (answer.validation_samples >= answer.held_out_samples && answer.validation_samples > 0)
    return ", but they took part in the choice; no other sample is left to judge it";
  const double most = 1 - std::pow(0.05, 1.0 / answer.held_out_samples);
  std::string text =
      fmt::format(": with 95 % confidence at most {:.2g} % of such data fail (rule of three)", 100 * most);
  if (answer.validation_samples > 0)
    text += fmt::format("; {} more took part in the choice", counted(answer.validation_samples, "sample"));
  return text;
}

/// Proven sets that are others than the answer.
void append_sets(const Answer& answer, std::string& out) {
  const auto fixed = std::ranges::count_if(answer.kept, [](const KeptLayer& layer) {
    return layer.reason.kind == ReasonKind::kSingular || layer.reason.kind == ReasonKind::kRequested;
  });
  std::map<int, std::vector<std::string_view>> objectives;
  for (const Answer::ProvenSet& each : answer.sets) objectives[each.trial].push_back(name_of(each.objective));
  for (const auto& [number, names] : objectives) {
    const Trial& trial = answer.trials[static_cast<std::size_t>(number)];
    const auto layers = static_cast<std::int64_t>(trial.raised.size()) + fixed;
    // Trials are stored to a few digits.
    if (layers == std::ssize(answer.kept) && std::fabs(trial.time_us - answer.time_us) < 1e-3 * answer.time_us)
      continue;
    out += fmt::format("Also proven, the {} set: {}, {}, {:.3g} % of the multiply-adds (convert --objective {})\n",
                       fmt::join(names, " and "), counted(layers, "layer"), microseconds(trial.time_us),
                       100 * trial.cost_share, names.front());
  }
}

void append_figures(const Answer& answer, std::string& out) {
  if (has_tolerance(answer))
    out += fmt::format("Tolerance: {}, searched at {:.3g} of it\n", answer.criterion, answer.margin);
  if (answer.search_samples > 0 && !answer.search.outputs.empty())
    out += fmt::format("Error on the {} of the search: {}\n", counted(answer.search_samples, "sample"),
                       error_line(answer, answer.search));
  if (answer.held_out && !has_tolerance(answer)) {
    out += fmt::format("Error on the {} held out: {}\n", counted(answer.held_out_samples, "sample"),
                       error_line(answer, *answer.held_out));
  } else if (answer.held_out) {
    const std::string passed = answer.held_out->passed() ? std::string("all pass")
                               : answer.held_out_passed > 0
                                   ? fmt::format("{} of {} pass", answer.held_out_passed, answer.held_out_samples)
                                   : std::string("not all pass");
    out += fmt::format("Error on the {} held out: {}; {}{}\n", counted(answer.held_out_samples, "sample"),
                       error_line(answer, *answer.held_out), passed, worth(answer));
  } else {
    out += "Held-out samples: none were checked; the answer is known to hold on the samples of the search only\n";
  }
  out += answer.bits
             ? std::string("Cost")
             : fmt::format("Cost: {:.3g} % of the multiply-adds stay in higher precision", answer.cost_share * 100.0);
  if (answer.time_high_us > 0)
    out +=
        fmt::format("; estimated on {}: {}, all in the highest precision {}, all in the lowest {}", answer.target,
                    microseconds(answer.time_us), microseconds(answer.time_high_us), microseconds(answer.time_low_us));
  out += "\n";
  if (answer.objective) {
    const ObjectiveRule& rule = rule_of(*answer.objective);
    out += fmt::format("Chosen for: {} ({}){}\n", rule.wish, rule.name,
                       answer.objective == Objective::kFastest && is_slower_than_highest(answer)
                           ? ", launches of casts left out"
                           : "");
  }
  append_sets(answer, out);
  out += fmt::format("Spent: {}{} in {:.3g} s\n", counted(answer.evaluations, "evaluation"),
                     answer.held_out_evaluations > 0
                         ? fmt::format(" and {} of the held-out samples", answer.held_out_evaluations)
                         : "",
                     answer.seconds);
}

}  // namespace

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string layer_precisions_text(const Answer& answer) {
  std::string text;
  for (const KeptLayer& layer : answer.kept)
    text += fmt::format("{}:{}\n", layer.name, form_of(layer.precision).request());
  return text;
}

std::string answer_text(const AnswerFile& file, bool everything) {
  const Answer& answer = file.answer;
  std::string out = lowest_text(file);
  if (!out.empty()) out += "\n";
  out += answer.message + "\n";
  if (answer.verdict == Answer::Verdict::kUnverified && answer.search.outputs.empty() && answer.kept.empty()) {
    out += fmt::format(
        "Tolerance: {}, searched at {:.3g} of it\nSpent: {} in {:.3g} s; no set of layers is known to pass yet",
        answer.criterion, answer.margin, counted(answer.evaluations, "evaluation"), answer.seconds);
    return out;
  }
  append_layers(answer, everything, out);
  append_others(file, everything, out);
  append_figures(answer, out);
  std::string command = "ulpscope run " + shell_word(file.model);
  for (const std::string& word : run_options(file)) command.append(" ").append(shell_word(word));
  out += "To reproduce it, with the inputs and the comparison of your choice:\n";
  out += everything || command.size() <= kCommandLength
             ? "    " + command
             : fmt::format("    a command of {} characters: -v shows it, and the saved answer has it", command.size());
  return out;
}

}  // namespace ulpscope
