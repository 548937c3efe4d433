#include "compare/results.h"

#include <charconv>
#include <cmath>

namespace ulpscope {

const Tensor* IterationResult::find(std::string_view name) const {
  for (const NamedTensor& output : outputs)
    if (output.name == name) return &output.tensor;
  return nullptr;
}

std::string python_string(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string result(1, quote);
  for (char c : text) {
    if (c == quote || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (c == '\r') {
      result += "\\r";
    } else {
      result += c;
    }
  }
  return result + quote;
}

std::string python_list(const std::vector<std::string>& names) {
  std::string result = "[";
  for (const std::string& name : names) {
    if (result.size() > 1) result += ", ";
    result += python_string(name);
  }
  return result + "]";
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Python writes fixed notation for exponents from -4 to 15.
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (value != 0 && (exponent < -4 || exponent >= 16)) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string result(buffer, fixed.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

}  // namespace ulpscope
