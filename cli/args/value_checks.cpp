#include "args/value_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "compare/name_values.h"
#include "core/messages.h"
#include "core/text.h"

namespace ulpscope::cli {
namespace {

bool is_identifier(std::string_view text) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !text.empty() && std::ranges::all_of(text, fits) && std::isdigit(static_cast<unsigned char>(text[0])) == 0;
}

void check_name(std::string_view option, const std::string& name, const std::vector<std::string>& known) {
  const bool fits = known.empty() ? is_identifier(name) : std::ranges::find(known, lower_case(name)) != known.end();
  if (fits) return;
  throw invalid_argument("[options] {}: expected {}, got '{}'", option,
                         known.empty() ? "a name" : fmt::format("one of {}", fmt::join(known, ", ")), name);
}

NameAndText split_named(std::string_view option, const std::string& word, std::string_view value_name) {
  NameAndText split = split_name(word);
  if (split.name.empty())
    throw invalid_argument("[options] Could not parse argument: {}. {} takes NAME:{}, as in {} NAME:{}", word, option,
                           value_name, option, word);
  return split;
}

/// A check of one word, of all of them.
template <typename Check>
OptionCheck of_each_word(Check check) {
  return [check = std::move(check)](std::string_view option, const std::vector<std::string>& words) {
    for (const std::string& word : words) check(option, word);
  };
}

}  // namespace

std::size_t parse_byte_count(std::string_view option, const std::string& text, std::size_t least) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string suffix = lower_case(std::string(rest, text.data() + text.size()));
  constexpr std::string_view kUnits[][3] = {
      {"", "b", "b"}, {"k", "kb", "kib"}, {"m", "mb", "mib"}, {"g", "gb", "gib"}, {"t", "tb", "tib"}};
  double factor = 1;
  for (const auto& names : kUnits) {
    const bool named = std::ranges::find(names, suffix) != std::end(names);
    if (named && error == std::errc() && value * factor >= static_cast<double>(least) && value * factor < 0x1p62)
      return static_cast<std::size_t>(value * factor);
    factor *= 0x1p10;
  }
  throw invalid_argument(
      "[options] Could not convert {} to a number of bytes; {} takes {}bytes such as 16000000, 16e6 or 16M", text,
      option, least > 0 ? fmt::format("{} or more ", least) : "");
}

OptionCheck bytes_check() {
  return of_each_word([](std::string_view option, const std::string& word) { parse_byte_count(option, word); });
}

OptionCheck bytes_or_percent_check() {
  return of_each_word([](std::string_view option, std::string word) {
    if (word.ends_with('%')) word.pop_back();
    // -1 leaves the choice to TensorRT.
    if (word != "-1") parse_byte_count(option, word);
  });
}

OptionCheck named_check(std::string value_name) {
  return of_each_word([value_name = std::move(value_name)](std::string_view option, const std::string& word) {
    split_named(option, word, value_name);
  });
}

OptionCheck pools_check(std::vector<std::string> pools) {
  return of_each_word([pools = std::move(pools)](std::string_view option, const std::string& word) {
    const NameAndText split = split_named(option, word, "BYTES");
    check_name(option, split.name, pools);
    parse_byte_count(option, split.text);
  });
}

OptionCheck names_check(std::vector<std::string> known) {
  return of_each_word([known = std::move(known)](std::string_view option, const std::string& word) {
    check_name(option, word, known);
  });
}

}  // namespace ulpscope::cli
