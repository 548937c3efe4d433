#include "args/meant.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "graph/name_match.h"

namespace ulpscope::cli {
namespace {

constexpr std::string_view kTextDashes[] = {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"};

/// What other programs, or other tools of this one, call what an option here does.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"--half", "--fp16"},           {"--float16", "--fp16"},     {"--bfloat16", "--bf16"},
    {"--answer", "--save-answer"},  {"-o", "--save-answer"},     {"-o", "--save-json"},
    {"--output", "--save-answer"},  {"--output", "--save-json"}, {"--out", "--output"},
    {"--out", "--save-answer"},     {"--save", "--output"},      {"--samples", "--load-inputs"},
    {"--tolerance", "--threshold"}, {"--tol", "--threshold"},    {"--gpu", "--target"},
};

std::vector<std::string> names_of(const OptionTable& table) {
  std::vector<std::string> names;
  for (const Option& option : table.options())
    if (option.instead.empty()) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::string with_plain_dashes(const std::string& word) {
  std::string_view rest = word;
  bool any = false;
  while (true) {
    const auto dash = std::ranges::find_if(kTextDashes, [&](std::string_view d) { return rest.starts_with(d); });
    if (dash != std::end(kTextDashes)) {
      rest.remove_prefix(dash->size());
      any = true;
    } else if (rest.starts_with('-')) {
      rest.remove_prefix(1);
    } else {
      break;
    }
  }
  return any ? fmt::format("{}{}", rest.size() == 1 ? "-" : "--", rest) : word;
}

std::string meant_options(const OptionTable& table, const Arguments& parsed) {
  const std::vector<std::string> names = names_of(table);
  for (const std::string& word : parsed.unrecognized)
    if (const std::string typed = with_plain_dashes(word); typed != word)
      return fmt::format("; '{}' begins with a dash of a text, not with two hyphens: did you mean '{}'?", word, typed);
  for (const std::string& word : parsed.unrecognized) {
    if (!word.starts_with('-')) continue;
    const std::string name = word.substr(0, word.find('='));
    for (const auto& [elsewhere, here] : kElsewhere)
      if (name == elsewhere && is_among(names, here)) return fmt::format("; did you mean '{}'?", here);
    if (word.starts_with("--")) return did_you_mean(name, names);
  }
  const bool options = std::ranges::any_of(parsed.unrecognized, [](const auto& word) { return word.starts_with('-'); });
  if (options) return "";
  const std::string usage = table.usage();
  return "; too many words: " + usage.substr(0, usage.find('\n'));
}

}  // namespace ulpscope::cli
