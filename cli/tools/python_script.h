// A script in Python while it is put together: calls, named expressions, imports, sections.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/name_values.h"
#include "compare/results.h"
#include "ulpscope/shape.h"

namespace ulpscope::cli {

/// A call in Python: arguments that are empty are left out.
class Call {
 public:
  explicit Call(std::string function) : function_(std::move(function)) {}

  Call& positional(std::string expression) {
    words_.push_back(std::move(expression));
    return *this;
  }
  Call& named(const char* name, const std::string& expression) {
    if (!expression.empty()) words_.push_back(fmt::format("{}={}", name, expression));
    return *this;
  }
  Call& flag(const char* name, bool on) { return named(name, on ? "True" : ""); }
  bool plain() const { return words_.empty(); }
  std::string text() const { return fmt::format("{}({})", function_, fmt::join(words_, ", ")); }

 private:
  std::string function_;
  std::vector<std::string> words_;
};

/// Expressions; the empty text for what was not given.
std::string text_or_none(const std::optional<std::string>& text);
std::string list_or_none(const std::vector<std::string>& words);
std::string shape_list(const Shape& shape);
/// As a Python expression; what has no fraction is an integer, as Polygraphy reads it.
std::string python_value(double value);
std::string python_value(std::int64_t value);
std::string python_value(const std::string& value);

/// {'': 0.001, 'y': 0.01}; nothing for no entries.
template <typename T, typename Text>
std::string dictionary(const std::vector<std::pair<std::string, T>>& entries, const Text& text) {
  std::vector<std::string> words;
  for (const auto& [name, value] : entries) words.push_back(fmt::format("{}: {}", python_string(name), text(value)));
  return words.empty() ? "" : fmt::format("{{{}}}", fmt::join(words, ", "));
}
template <typename T>
std::string dictionary(const PerName<T>& values) {
  return dictionary(values.entries(), [](const T& value) { return python_value(value); });
}

/// The parts that a script grows from.
class PythonScript {
 public:
  void add_import(const std::string& module, const std::string& name) { imports_[module].insert(name); }
  /// `trt` and `onnxrt`, imported once they are used.
  void lazy_tensorrt();
  void lazy_onnxruntime();

  /// InvokeFromScript for PATH[:FUNCTION].
  std::string invoke(const std::string& text, const char* default_function);

  /// Adds "name = expression" unless this very expression has a name already. Returns the name.
  std::string loader(const std::string& name, const std::string& expression);
  /// True the first time that the name is asked for.
  bool take_name(const std::string& name) { return names_.insert(name).second; }
  bool has_name(const std::string& name) const { return names_.contains(name); }

  /// The lines at the top that import what was used,
  std::string import_lines() const;
  /// and set the level of the log, if the script is a program.
  static std::string logger_lines();

  std::string data;  ///< The expression for the data; empty: the default.
  std::vector<std::string> data_lines, loader_lines, comparison_lines;

 private:
  std::map<std::string, std::set<std::string>> imports_;
  std::map<std::string, std::string> loaders_;  ///< Name per expression.
  std::set<std::string> names_;
  bool uses_tensorrt_ = false, uses_onnxruntime_ = false;
};

}  // namespace ulpscope::cli
