#include "args/parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "args/meant.h"
#include "graph/name_match.h"

namespace ulpscope::cli {
namespace {

/// What a word starts: an option of the table, -h, or an option that nobody knows (option == nullptr).
struct Match {
  const Option* option = nullptr;
  bool help = false;
  std::string name;
  std::optional<std::string> attached;  ///< After '=' or after a short option's letter.
};

/// argparse: ^-\d+$|^-\d*\.\d+$
bool looks_like_negative_number(const std::string& word) {
  const std::size_t digits = word.find_first_not_of("0123456789", 1);
  if (digits == std::string::npos) return word.size() > 1;
  if (word[digits] != '.') return false;
  return digits + 1 < word.size() && word.find_first_not_of("0123456789", digits + 1) == std::string::npos;
}

template <typename T>
std::optional<T> to_number(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  T value{};
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && stop == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

class Reader {
 public:
  Reader(const OptionTable& table, std::span<const std::string> words) : table_(table), words_(words) {
    names_["-h"] = nullptr;
    names_["--help"] = nullptr;
    names_["--help-all"] = nullptr;
    for (const Option& option : table.options())
      for (const std::string& name : option.names) names_[name] = &option;
  }

  Arguments read() {
    classify();
    std::size_t at = 0;
    while (at < words_.size() && !result_.help) {
      if (kinds_[at] == 'O') {
        at = read_option(at);
      } else {
        at = read_words(at);
      }
    }
    if (!result_.help && table_.positional_required() && !result_.positional)
      throw UsageError("the following arguments are required: " + table_.positional_metavar());
    if (!result_.help && table_.more_required() && result_.more_positionals.size() < table_.more_metavars().size())
      throw UsageError("the following arguments are required: " +
                       fmt::format("{}", fmt::join(table_.more_metavars().begin() +
                                                       static_cast<std::ptrdiff_t>(result_.more_positionals.size()),
                                                   table_.more_metavars().end(), ", ")));
    return std::move(result_);
  }

 private:
  /// 'O' an option, 'A' a value, '-' the first "--".
  void classify() {
    bool only_values = false;
    for (const std::string& word : words_) {
      if (only_values) {
        kinds_ += 'A';
      } else if (word == "--") {
        kinds_ += '-';
        only_values = true;
      } else if (std::optional<Match> match = match_option(word)) {
        // What follows belongs to another program: none of it is ours to read.
        only_values = match->option != nullptr && match->option->arity == Arity::kRest && !match->attached;
        matches_[kinds_.size()] = std::move(*match);
        kinds_ += 'O';
      } else {
        kinds_ += 'A';
      }
    }
  }

  std::optional<Match> match_option(const std::string& word) const {
    if (word.empty()) return std::nullopt;
    if (word[0] != '-') {
      // "–trt" behind a list is no value of it; the message says what is wrong with it.
      const std::string plain = with_plain_dashes(word);
      if (plain == word || !names_.contains(plain.substr(0, plain.find('=')))) return std::nullopt;
      return Match{nullptr, false, word, std::nullopt};
    }
    if (const auto found = names_.find(word); found != names_.end())
      return Match{found->second, found->second == nullptr, word, std::nullopt};
    if (word.size() == 1) return std::nullopt;
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      const std::string name = word.substr(0, equals);
      if (const auto found = names_.find(name); found != names_.end())
        return Match{found->second, found->second == nullptr, name, word.substr(equals + 1)};
    }
    if (std::optional<Match> match = word[1] == '-' ? match_prefix(word, equals) : match_short(word)) return match;
    if (looks_like_negative_number(word) || word.find(' ') != std::string::npos) return std::nullopt;
    return Match{nullptr, false, word, std::nullopt};
  }

  std::optional<Match> match_prefix(const std::string& word, std::size_t equals) const {
    const std::string prefix = word.substr(0, equals);
    std::vector<std::pair<std::string, const Option*>> theirs, ours;
    for (auto it = names_.lower_bound(prefix); it != names_.end() && it->first.starts_with(prefix); ++it)
      (it->second != nullptr && it->second->own ? ours : theirs).emplace_back(it->first, it->second);
    const auto& candidates = theirs.empty() ? ours : theirs;
    if (candidates.empty()) return std::nullopt;
    for (const auto& [name, option] : candidates) {
      if (option == candidates[0].second) continue;
      std::vector<std::string> all;
      for (const auto& candidate : candidates) all.push_back(candidate.first);
      throw UsageError(fmt::format("ambiguous option: {} could match {}", word, fmt::join(all, ", ")));
    }
    Match match{candidates[0].second, candidates[0].second == nullptr, candidates[0].first, std::nullopt};
    if (equals != std::string::npos) match.attached = word.substr(equals + 1);
    return match;
  }

  /// "-vv": -v with "v" attached.
  std::optional<Match> match_short(const std::string& word) const {
    const auto found = names_.find(word.substr(0, 2));
    if (found == names_.end()) return std::nullopt;
    return Match{found->second, found->second == nullptr, found->first, word.substr(2)};
  }

  std::size_t read_option(std::size_t at) {
    Match match = matches_.at(at);
    if (match.option == nullptr && !match.help) {
      result_.unrecognized.push_back(words_[at]);
      return at + 1;
    }
    while (true) {
      const Arity arity = match.help ? Arity::kNone : match.option->arity;
      if (!match.attached) break;
      if (arity != Arity::kNone) {
        take(match, {*match.attached});
        return at + 1;
      }
      const bool is_short = match.name.size() == 2 && match.name[1] != '-';
      const auto next =
          is_short && !match.attached->empty() ? names_.find({'-', match.attached->front()}) : names_.end();
      if (next == names_.end())
        throw UsageError(fmt::format("argument {}: ignored explicit argument '{}'", display(match), *match.attached));
      take(match, {});
      if (result_.help) return at + 1;
      const std::string rest = match.attached->substr(1);
      match =
          Match{next->second, next->second == nullptr, next->first, rest.empty() ? std::nullopt : std::optional(rest)};
    }
    return read_values(match, at + 1);
  }

  std::size_t read_values(const Match& match, std::size_t at) {
    std::size_t available = 0;
    while (at + available < words_.size() && kinds_[at + available] == 'A') ++available;
    std::size_t wanted = 0;
    switch (match.help ? Arity::kNone : match.option->arity) {
      case Arity::kNone:
        break;
      case Arity::kOne:
        if (available == 0) throw UsageError(fmt::format("argument {}: expected one argument", display(match)));
        wanted = 1;
        break;
      case Arity::kOptional:
        wanted = std::min<std::size_t>(available, 1);
        break;
      case Arity::kSome:
        if (available == 0)
          throw UsageError(fmt::format("argument {}: expected at least one argument", display(match)));
        [[fallthrough]];
      case Arity::kRest:
        if (available == 0) throw UsageError(fmt::format("argument {}: expected a command", display(match)));
        [[fallthrough]];
      case Arity::kAny:
        wanted = available;
        break;
    }
    take(match,
         {words_.begin() + static_cast<std::ptrdiff_t>(at), words_.begin() + static_cast<std::ptrdiff_t>(at + wanted)});
    return at + wanted;
  }

  /// Words that follow no option: the first is the positional argument.
  std::size_t read_words(std::size_t at) {
    std::size_t end = at;
    while (end < words_.size() && kinds_[end] != 'O') ++end;
    for (; at < end; ++at) {
      if (kinds_[at] == '-') {
        if (result_.positional || table_.positional_target() == nullptr) {
          // argparse drops the "--" that touches the positional argument, and no other.
          if (at == 0 || !positional_at_ || *positional_at_ + 1 != at) result_.unrecognized.push_back("--");
        }
      } else if (!result_.positional && table_.positional_target() != nullptr) {
        result_.positional = words_[at];
        positional_at_ = at;
      } else if (result_.more_positionals.size() < table_.more_metavars().size()) {
        result_.more_positionals.push_back(words_[at]);
      } else {
        result_.unrecognized.push_back(words_[at]);
      }
    }
    return end;
  }

  void take(const Match& match, std::vector<std::string> values) {
    if (match.help) {
      result_.help = true;
      result_.help_all = match.name == "--help-all";
      return;
    }
    const Option& option = *match.option;
    for (const std::string& value : values) {
      if (option.choices.empty() || std::ranges::find(option.choices, value) != option.choices.end()) continue;
      throw UsageError(fmt::format("argument {}: invalid choice: '{}' (choose from '{}'){}", option.display(), value,
                                   fmt::join(option.choices, "', '"), did_you_mean(value, option.choices)));
    }
    for (const std::string& value : values) {
      if (!option.integers || to_number<int>(value)) continue;
      throw UsageError(fmt::format("argument {}: invalid int value: '{}'", option.display(), value));
    }
    for (const Occurrence& seen : result_.occurrences) {
      if (seen.option != &option &&
          (seen.option->names[0] == option.excludes || seen.option->excludes == option.names[0]))
        throw UsageError(
            fmt::format("argument {}: not allowed with argument {}", option.display(), seen.option->display()));
    }
    result_.occurrences.push_back({&option, std::move(values)});
  }

  static std::string display(const Match& match) { return match.help ? "-h/--help" : match.option->display(); }

  const OptionTable& table_;
  std::span<const std::string> words_;
  std::map<std::string, const Option*> names_;
  std::string kinds_;
  std::map<std::size_t, Match> matches_;
  Arguments result_;
  std::optional<std::size_t> positional_at_;
};

/// One use of an option; a later one replaces what an earlier one set, except where every use counts.
void assign(const Option& option, std::vector<std::string>& values) {
  const auto number = [&](auto* target) {
    const std::string& text = values.back();
    const auto value = to_number<typename std::remove_pointer_t<decltype(target)>::value_type>(text);
    if (!value)
      throw UsageError(fmt::format("argument {}: invalid {} value: '{}'", option.display(),
                                   std::is_same_v<decltype(target), std::optional<int>*> ? "int" : "float", text));
    *target = value;
  };
  std::visit(Overloaded{[](std::monostate) {}, [](bool* flag) { *flag = true; }, [](int* count) { ++*count; },
                        [&](Ordered* order) { order->push_back(option.canonical()); },
                        [&](std::optional<int>* target) { number(target); },
                        [&](std::optional<double>* target) { number(target); },
                        [&](std::optional<std::string>* text) { *text = values.empty() ? "" : values.back(); },
                        [&](std::vector<std::string>* list) { *list = values; },
                        [&](Repeated* lists) { lists->push_back(values); }},
             option.target);
}

/// --data-loader-func-name calib after --data-loader-script s.py: s.py:calib.
void name_function(const OptionTable& table, const Option& option, const std::string& function) {
  std::optional<std::string>* script =
      option.function_of == table.positional_metavar() ? table.positional_target() : nullptr;
  for (const Option& other : table.options())
    if (other.canonical() == option.function_of) script = std::get<std::optional<std::string>*>(other.target);
  if (script == nullptr || !*script)
    throw UsageError(fmt::format("argument {}: expected {} too", option.display(), option.function_of));
  **script += ":" + function;
}

}  // namespace

Arguments read_arguments(const OptionTable& table, std::span<const std::string> words) {
  return Reader(table, words).read();
}

Arguments parse(const OptionTable& table, std::span<const std::string> words) {
  Arguments arguments = read_arguments(table, words);
  if (arguments.help || !arguments.unrecognized.empty()) return arguments;
  for (auto& [option, values] : arguments.occurrences) assign(*option, values);
  if (arguments.positional) *table.positional_target() = arguments.positional;
  for (const auto& [option, values] : arguments.occurrences)
    if (!option->function_of.empty()) name_function(table, *option, values.back());
  if (table.more_target() != nullptr) *table.more_target() = arguments.more_positionals;
  return arguments;
}

}  // namespace ulpscope::cli
