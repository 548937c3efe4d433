#include "tools/python_script.h"

#include <cmath>

#include "compare/log_levels.h"
#include "runners/script_host.h"

namespace ulpscope::cli {
namespace {

std::string severity() {
  const std::string_view level = least_log_level();
  return level == "INFO" ? "" : fmt::format("G_LOGGER.module_severity = {{'': G_LOGGER.{}}}\n", level);
}

}  // namespace

std::string text_or_none(const std::optional<std::string>& text) { return text ? python_string(*text) : ""; }

std::string list_or_none(const std::vector<std::string>& words) { return words.empty() ? "" : python_list(words); }

std::string shape_list(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string python_value(double value) {
  if (!std::isfinite(value)) return fmt::format("float('{}')", python_float(value));
  return value == std::floor(value) && std::fabs(value) < 1e15 ? fmt::format("{}", static_cast<std::int64_t>(value))
                                                               : python_float(value);
}
std::string python_value(std::int64_t value) { return std::to_string(value); }
std::string python_value(const std::string& value) { return python_string(value); }

void PythonScript::lazy_tensorrt() {
  add_import("polygraphy", "mod");
  uses_tensorrt_ = true;
}

void PythonScript::lazy_onnxruntime() {
  add_import("polygraphy", "mod");
  uses_onnxruntime_ = true;
}

std::string PythonScript::invoke(const std::string& text, const char* default_function) {
  add_import("polygraphy.backend.common", "InvokeFromScript");
  const ScriptName script = ScriptName::parse(text, default_function);
  return Call("InvokeFromScript")
      .positional(python_string(script.path))
      .named("name", python_string(script.function))
      .text();
}

std::string PythonScript::loader(const std::string& name, const std::string& expression) {
  const auto [found, added] = loaders_.emplace(expression, name);
  if (!added) return found->second;
  int suffix = 1;
  std::string fresh = name;
  while (!names_.insert(fresh).second) fresh = fmt::format("{}_{}", name, suffix++);
  found->second = fresh;
  loader_lines.push_back(fmt::format("{} = {}", fresh, expression));
  return fresh;
}

std::string PythonScript::logger_lines() { return "from polygraphy.logger import G_LOGGER\n" + severity() + "\n"; }

std::string PythonScript::import_lines() const {
  std::string text;
  for (const auto& [module, names] : imports_) {
    if (module == "polygraphy") {
      for (const char* const name : {"constants", "func", "mod"})
        if (names.contains(name)) text += fmt::format("from polygraphy import {}\n", name);
      continue;
    }
    text += fmt::format("from {} import {}\n", module, fmt::join(names, ", "));
  }
  if (uses_tensorrt_) text += "trt = mod.lazy_import('tensorrt>=8.5')\n";
  if (uses_onnxruntime_) text += "onnxrt = mod.lazy_import('onnxruntime')\n";
  return text;
}

}  // namespace ulpscope::cli
