#include "args/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace ulpscope::cli {
namespace {

constexpr std::size_t kHelpColumn = 26;
constexpr std::size_t kWidth = 110;

std::string values_text(const Option& option) {
  const std::string name =
      option.choices.empty() ? option.metavar : fmt::format("{{{}}}", fmt::join(option.choices, ","));
  switch (option.arity) {
    case Arity::kNone:
      return {};
    case Arity::kOne:
      return " " + name;
    case Arity::kOptional:
      return fmt::format(" [{}]", name);
    case Arity::kAny:
      return fmt::format(" [{} ...]", name);
    case Arity::kSome:
      return fmt::format(" {} [{} ...]", name, name);
    case Arity::kRest:
      return fmt::format(" {} ...", name);
  }
  return {};
}

/// Wraps words at kWidth, every line indented by `margin`.
void wrap(std::string& out, std::string_view text, std::size_t margin) {
  std::istringstream words{std::string(text)};
  std::string word, line;
  while (words >> word) {
    if (!line.empty() && margin + line.size() + 1 + word.size() > kWidth) {
      out += std::string(margin, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) out += std::string(margin, ' ') + line + "\n";
}

void entry(std::string& out, const std::string& head, const std::string& help) {
  out += "  " + head;
  const std::size_t used = 2 + head.size();
  std::string text;
  wrap(text, help, kHelpColumn);
  if (used + 2 <= kHelpColumn && !text.empty()) {
    out += std::string(kHelpColumn - used, ' ') + text.substr(kHelpColumn);
  } else {
    out += "\n" + text;
  }
}

/// Each use of an option with its values; none where its target holds nothing.
Repeated uses_of(const Option& option) {
  using Values = std::vector<std::string>;
  const auto optional = [](const auto* target) -> Repeated {
    return *target ? Repeated{{fmt::format("{}", **target)}} : Repeated{};
  };
  return std::visit(
      Overloaded{[](std::monostate) { return Repeated{}; },
                 [](const bool* flag) { return *flag ? Repeated(1) : Repeated{}; },
                 [](const int* count) { return Repeated(static_cast<std::size_t>(*count)); },
                 [](const Ordered*) { return Repeated{}; },  // All of a kind stand where the first is declared.
                 [&](const std::optional<std::string>* text) {
                   return option.arity == Arity::kOptional && *text == "" ? Repeated(1) : optional(text);
                 },
                 [&](const std::optional<int>* number) { return optional(number); },
                 [&](const std::optional<double>* number) { return optional(number); },
                 [](const Values* list) { return list->empty() ? Repeated{} : Repeated{*list}; },
                 [](const Repeated* lists) { return *lists; }},
      option.target);
}

}  // namespace

std::string Option::display() const { return fmt::format("{}", fmt::join(names, "/")); }

const std::string& Option::canonical() const {
  for (const std::string& name : names)
    if (name.starts_with("--")) return name;
  return names[0];
}

OptionTable::OptionTable(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {
  sections_.push_back({"options", ""});
}

void OptionTable::section(std::string title, std::string description) {
  sections_.push_back({std::move(title), std::move(description)});
}

Option& OptionTable::add(std::vector<std::string> names, Arity arity, Option::Target target, std::string metavar,
                         std::string help) {
  return options_.emplace_back(Option{.names = std::move(names),
                                      .arity = arity,
                                      .metavar = std::move(metavar),
                                      .help = std::move(help),
                                      .target = target,
                                      .own = std::exchange(next_is_own_, false),
                                      .section = sections_.size() - 1});
}

void OptionTable::positional(std::string metavar, std::optional<std::string>& target, std::string help, bool required) {
  positional_ = &target;
  positional_metavar_ = std::move(metavar);
  positional_help_ = std::move(help);
  positional_section_ = sections_.size() - 1;
  positional_required_ = required;
}

void OptionTable::more_positionals(std::vector<std::string> metavars, std::vector<std::string>& target,
                                   std::string help) {
  more_metavars_ = std::move(metavars);
  more_ = &target;
  more_help_ = std::move(help);
}

void OptionTable::further_positional(std::string metavar, std::vector<std::string>& target, std::string help) {
  more_positionals({std::move(metavar)}, target, std::move(help));
  more_required_ = false;
}

std::string OptionTable::usage() const {
  std::string text = "usage: " + program_ + " [-h]";
  if (positional_ != nullptr)
    text += positional_required_ ? " " + positional_metavar_ : " [" + positional_metavar_ + "]";
  for (const std::string& metavar : more_metavars_) text += more_required_ ? " " + metavar : " [" + metavar + "]";
  return text + " [options]\n";
}

std::vector<std::string> OptionTable::words(const std::function<void(const Option&)>& left_out) const {
  std::vector<std::string> words;
  if (positional_ != nullptr && *positional_) words.push_back(**positional_);
  const Ordered* done = nullptr;
  for (const Option& option : options_) {
    if (const auto* order = std::get_if<Ordered*>(&option.target); order != nullptr && *order != done) {
      done = *order;
      words.insert(words.end(), done->begin(), done->end());
    }
    const auto is_newer_form = [&](const Option& other) { return !other.own && other.target == option.target; };
    for (const std::vector<std::string>& values : uses_of(option)) {
      if (!option.own) {
        const bool attached = values.size() == 1 && values[0].starts_with('-');
        words.push_back(option.canonical() + (attached ? "=" + values[0] : ""));
        if (!attached) words.insert(words.end(), values.begin(), values.end());
      } else if (std::ranges::none_of(options_, is_newer_form)) {
        left_out(option);
      }
    }
  }
  return words;
}

std::string OptionTable::help(bool all) const {
  const bool hides = std::ranges::any_of(options_, [](const Option& o) { return o.support == Support::kIgnored; });
  std::string text = usage() + "\n" + description_ + "\n";
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    std::string body;
    if (s == 0) {
      entry(body, "-h, --help", "show this help message and exit");
      if (hides) entry(body, "--help-all", "the same, with the options that are accepted and have no effect");
    }
    if (positional_ != nullptr && positional_section_ == s) {
      entry(body, positional_metavar_, positional_help_);
      if (!more_metavars_.empty()) entry(body, fmt::format("{}", fmt::join(more_metavars_, " ")), more_help_);
    }
    for (const Option& option : options_) {
      if (option.section != s || (option.support == Support::kIgnored && !all)) continue;
      std::string about = option.help;
      if (option.support == Support::kIgnored) about += " [accepted, has no effect: " + option.instead + "]";
      if (option.support == Support::kRefused) about += " [refused: " + option.instead + "]";
      entry(body, fmt::format("{}{}", fmt::join(option.names, ", "), values_text(option)), about);
    }
    if (body.empty()) continue;
    text += "\n" + sections_[s].title + ":\n";
    if (!sections_[s].description.empty()) text += "  Options related to " + sections_[s].description + "\n\n";
    text += body;
  }
  return text;
}

}  // namespace ulpscope::cli
