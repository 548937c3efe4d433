// The options of one tool: what the parser, the help text and the documentation are made from.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ulpscope::cli {

/// Functions as one, for std::visit.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

/// How many values follow an option; argparse's `nargs`.
enum class Arity {
  kNone,      ///< A flag.
  kOne,       ///< Exactly one.
  kOptional,  ///< None or one.
  kAny,       ///< None or more: takes every word up to the next option.
  kSome,      ///< One or more, as greedily.
  kRest,      ///< Every word that follows, options too; argparse's REMAINDER.
};

/// What happens to options that people have in their scripts.
enum class Support {
  kDone,
  kIgnored,  ///< Accepted with one warning line: has no meaning for this engine.
  kRefused,  ///< Accepted by the parser, then an Error that says what to do instead.
};

/// Values of an option that may be repeated, one list per repetition.
using Repeated = std::vector<std::vector<std::string>>;
/// Canonical names of the options of one kind, in the order typed (`--onnxrt --trt --onnxrt`).
struct Ordered : std::vector<std::string> {};

/// Throws Error for words that do not fit the option of this name.
using OptionCheck = std::function<void(std::string_view, const std::vector<std::string>&)>;

struct Option {
  std::vector<std::string> names;  ///< The first is canonical.
  Arity arity = Arity::kNone;
  std::string metavar;
  std::string help;
  using Target = std::variant<std::monostate, bool*, int*, std::optional<int>*, std::optional<double>*,
                              std::optional<std::string>*, std::vector<std::string>*, Repeated*, Ordered*>;
  Target target;
  std::vector<std::string> choices;
  bool integers = false;  ///< Each value of a list must be an integer.
  OptionCheck check;      ///< What else the values must be; empty: anything.
  /// Its value is the function of the script in the value of this option, or of the positional argument: ":value"
  /// goes behind that.
  std::string function_of;
  std::string excludes;  ///< Canonical name of the option that must not be given too.
  Support support = Support::kDone;
  std::string instead;  ///< Why it is ignored or refused, and what to use.
  /// Not an option of Polygraphy: never makes an abbreviation of one of Polygraphy's options ambiguous.
  bool own = false;
  std::size_t section = 0;

  /// "--rtol/--rel-tol", as argparse names options in messages.
  std::string display() const;
  /// The first name that starts with two dashes: the one that the parser sees.
  const std::string& canonical() const;

  Option& choose(std::vector<std::string> values) { return choices = std::move(values), *this; }
  Option& whole_numbers() { return integers = true, *this; }
  Option& verify(OptionCheck by) { return check = std::move(by), *this; }
  Option& names_function_of(std::string name) { return function_of = std::move(name), *this; }
  Option& exclude(std::string name) { return excludes = std::move(name), *this; }
  Option& ignore(std::string why) { return support = Support::kIgnored, instead = std::move(why), *this; }
  Option& refuse(std::string why) { return support = Support::kRefused, instead = std::move(why), *this; }
};

struct Section {
  std::string title, description;
};

/// A command line that does not fit the options; exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Declared by the argument groups, in the order of the help text. Targets must outlive parsing. The references that
/// the declarations return are valid until the next declaration.
class OptionTable {
 public:
  OptionTable(std::string program, std::string description);

  /// Starts a group of options: "Title:" and "Options related to <description>" in the help text.
  void section(std::string title, std::string description);

  /// The next option is no option of Polygraphy.
  OptionTable& ours() { return next_is_own_ = true, *this; }

  using Names = std::vector<std::string>;
  Option& flag(Names names, bool& target, std::string help) {
    return add(std::move(names), Arity::kNone, &target, "", std::move(help));
  }
  Option& count(Names names, int& target, std::string help) {
    return add(std::move(names), Arity::kNone, &target, "", std::move(help));
  }
  Option& ordered(std::string name, Ordered& target, std::string help) {
    return add({std::move(name)}, Arity::kNone, &target, "", std::move(help));
  }
  /// One value: a text, an integer or a number.
  template <typename T>
  Option& value(Names names, std::optional<T>& target, std::string metavar, std::string help) {
    return add(std::move(names), Arity::kOne, &target, std::move(metavar), std::move(help));
  }
  /// A value that may be left out: the target is then the empty text.
  Option& optional_value(Names names, std::optional<std::string>& target, std::string metavar, std::string help) {
    return add(std::move(names), Arity::kOptional, &target, std::move(metavar), std::move(help));
  }
  Option& list(Names names, std::vector<std::string>& target, std::string metavar, std::string help) {
    return add(std::move(names), Arity::kSome, &target, std::move(metavar), std::move(help));
  }
  /// Takes all words that are left, to hand them to another program.
  Option& rest(Names names, std::vector<std::string>& target, std::string metavar, std::string help) {
    return add(std::move(names), Arity::kRest, &target, std::move(metavar), std::move(help));
  }
  Option& repeated(Names names, Repeated& target, std::string metavar, std::string help) {
    return add(std::move(names), Arity::kSome, &target, std::move(metavar), std::move(help));
  }
  /// Words that are accepted without a target: combine with ignore() or refuse().
  Option& words(Names names, Arity arity, std::string metavar, std::string help) {
    return add(std::move(names), arity, {}, std::move(metavar), std::move(help));
  }

  /// The positional argument; at most one, optional unless `required`.
  void positional(std::string metavar, std::optional<std::string>& target, std::string help, bool required = false);

  /// Exactly `metavars.size()` further positional arguments, all of them required.
  void more_positionals(std::vector<std::string> metavars, std::vector<std::string>& target, std::string help);
  /// One further positional argument, which may be left out.
  void further_positional(std::string metavar, std::vector<std::string>& target, std::string help);

  const std::string& program() const noexcept { return program_; }
  std::span<const Option> options() const noexcept { return options_; }
  std::optional<std::string>* positional_target() const noexcept { return positional_; }
  const std::string& positional_metavar() const noexcept { return positional_metavar_; }
  bool positional_required() const noexcept { return positional_required_; }
  const std::vector<std::string>& more_metavars() const noexcept { return more_metavars_; }
  bool more_required() const noexcept { return more_required_; }
  std::vector<std::string>* more_target() const noexcept { return more_; }

  /// "usage: ulpscope run [-h] [options] [MODEL]".
  std::string usage() const;
  /// What the targets hold, as words of a command line: first the positional argument, then the options of Polygraphy
  /// that have a value. `left_out` is called for those of ulpscope alone that have one.
  std::vector<std::string> words(const std::function<void(const Option&)>& left_out) const;
  /// The text of `--help`: usage, description, then one paragraph per section. `all`: that of `--help-all`, with the
  /// options that are accepted for the sake of scripts and have no effect.
  std::string help(bool all) const;

 private:
  Option& add(Names names, Arity arity, Option::Target target, std::string metavar, std::string help);

  std::string program_, description_;
  std::vector<Section> sections_;
  std::vector<Option> options_;
  bool next_is_own_ = false;
  std::optional<std::string>* positional_ = nullptr;
  std::string positional_metavar_, positional_help_;
  std::size_t positional_section_ = 0;
  bool positional_required_ = false;
  std::vector<std::string>* more_ = nullptr;
  std::vector<std::string> more_metavars_;
  bool more_required_ = true;
  std::string more_help_;
};

}  // namespace ulpscope::cli
