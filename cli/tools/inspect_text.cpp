#include "tools/inspect_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ulpscope::cli {

std::string indent_block(std::string_view text, int level) {
  const std::string tab(static_cast<std::size_t>(4 * level), ' ');
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::string result = tab;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += tab;
  }
  return result;
}

std::string stripped(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

std::string tensor_text(std::string_view name, std::string_view type, std::string_view shape) {
  std::vector<std::string> about;
  if (!type.empty()) about.push_back(fmt::format("dtype={}", type));
  if (!shape.empty()) about.push_back(fmt::format("shape={}", shape));
  return stripped(about.empty() ? std::string(name) : fmt::format("{} [{}]", name, fmt::join(about, ", ")));
}

std::string braces(const std::vector<std::string>& entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ",\n "));
}

std::string layer_text(std::string_view prefix, std::size_t index, std::string_view name, std::string_view op,
                       const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  const bool both = !inputs.empty() && !outputs.empty();
  const int level = both ? 1 : 0;
  return fmt::format("{} {:<4} | {} [Op: {}]\n", prefix, index, name, op) + indent_block(braces(inputs)) +
         (both ? "\n" : "") + indent_block(" -> " + stripped(indent_block(braces(outputs), level)), level) + "\n";
}

}  // namespace ulpscope::cli
