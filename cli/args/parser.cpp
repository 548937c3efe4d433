#include "args/parser.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <deque>

namespace ulpscope::cli {
namespace {

/// Binds the table to a CLI11 app. The words are canonical by now, so that each value comes attached to its option's
/// canonical name: none of CLI11's own rules for splitting and abbreviating applies.
class Binder {
 public:
  explicit Binder(const OptionTable& table) : app_("", table.program()) {
    app_.set_help_flag();
    app_.allow_extras(false);
    for (const Option& option : table.options()) bind(option);
    if (table.positional_target() != nullptr) {
      std::optional<std::string>* target = table.positional_target();
      app_.add_option_function<std::string>("MODEL", [target](const std::string& value) { *target = value; });
    }
  }

  void parse(std::vector<std::string> words) {
    std::ranges::reverse(words);
    app_.parse(std::move(words));
    for (const auto& finish : finish_) finish();
    order();
  }

 private:
  template <typename T>
  void bind_number(const Option& option, std::optional<T>* target) {
    app_.add_option_function<std::string>(option.canonical(), [&option, target](const std::string& text) {
      T value{};
      if (!CLI::detail::lexical_cast(text, value))
        throw UsageError("argument " + option.display() + ": invalid " + (std::is_integral_v<T> ? "int" : "float") +
                         " value: '" + text + "'");
      *target = value;
    });
  }

  std::vector<std::string>& bind_words(const Option& option) {
    std::vector<std::string>& words = words_.emplace_back();
    CLI::Option* bound = app_.add_option(option.canonical(), words)->expected(0, 1 << 20)->allow_extra_args(false);
    bound->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    given_.push_back(bound);
    return words;
  }

  void bind(const Option& option) {
    const std::string& name = option.canonical();
    if (const auto target = std::get_if<bool*>(&option.target)) {
      app_.add_flag_function(name, [t = *target](std::int64_t) { *t = true; });
    } else if (const auto count = std::get_if<int*>(&option.target)) {
      app_.add_flag_function(name, [t = *count](std::int64_t n) { *t = static_cast<int>(n); });
    } else if (const auto ordered = std::get_if<Ordered*>(&option.target)) {
      ordered_[app_.add_flag_function(name, [](std::int64_t) {})] = {name, *ordered};
    } else if (const auto integer = std::get_if<std::optional<int>*>(&option.target)) {
      bind_number(option, *integer);
    } else if (const auto number = std::get_if<std::optional<double>*>(&option.target)) {
      bind_number(option, *number);
    } else if (const auto text = std::get_if<std::optional<std::string>*>(&option.target)) {
      std::vector<std::string>& words = bind_words(option);
      finish_.emplace_back([&words, t = *text] {
        if (!words.empty()) *t = words.back();
      });
    } else if (const auto list = std::get_if<std::vector<std::string>*>(&option.target)) {
      std::vector<std::string>& words = bind_words(option);
      finish_.emplace_back([&words, t = *list] {
        if (!words.empty()) *t = words;
      });
    } else if (const auto repeated = std::get_if<Repeated*>(&option.target)) {
      std::vector<std::string>& words = bind_words(option);
      finish_.emplace_back([&words, t = *repeated] {
        for (const std::string& joined : words) t->push_back(CLI::detail::split(joined, kValueSeparator));
      });
    } else if (option.arity == Arity::kNone) {
      app_.add_flag_function(name, [](std::int64_t) {});
    } else {
      bind_words(option);
    }
  }

  void order() {
    for (const CLI::Option* option : app_.parse_order())
      if (const auto found = ordered_.find(option); found != ordered_.end())
        found->second.second->push_back(found->second.first);
  }

  CLI::App app_;
  std::deque<std::vector<std::string>> words_;
  std::vector<CLI::Option*> given_;
  std::vector<std::function<void()>> finish_;
  std::map<const CLI::Option*, std::pair<std::string, Ordered*>> ordered_;
};

}  // namespace

ParseResult parse(const OptionTable& table, std::span<const std::string> words) {
  const NormalizedArguments arguments = normalize(table, words);
  ParseResult result;
  result.help = arguments.help;
  result.unrecognized = arguments.unrecognized;
  if (result.help || !result.unrecognized.empty()) return result;
  for (const auto& [option, values] : arguments.occurrences) {
    if (option->support == Support::kIgnored && std::ranges::find(result.ignored, option) == result.ignored.end())
      result.ignored.push_back(option);
    if (option->support == Support::kRefused && result.refused == nullptr) result.refused = option;
  }
  try {
    Binder(table).parse(canonical_words(arguments));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (table.more_target() != nullptr) *table.more_target() = arguments.more_positionals;
  // Given without its optional value: the empty text, as distinct from not given.
  for (const auto& [option, values] : arguments.occurrences)
    if (const auto text = std::get_if<std::optional<std::string>*>(&option->target);
        text != nullptr && option->arity == Arity::kOptional)
      **text = values.empty() ? "" : values.back();
  return result;
}

}  // namespace ulpscope::cli
