#include "compare/name_values.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "compare/results.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

std::string_view trimmed(std::string_view text, std::string_view characters = " \t\n") {
  const std::size_t begin = text.find_first_not_of(characters);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(characters) - begin + 1);
}

[[noreturn]] void fail(std::string_view option, std::string_view argument, const std::string& expected,
                       const std::string& example) {
  throw invalid_argument("[options] " + std::string(option) + ": expected " + expected + ", got '" +
                         std::string(argument) + "'; try " + example);
}

std::optional<std::int64_t> as_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Python's float(): decimal notation, "inf", "infinity" and "nan" in any case; no hexadecimal.
std::optional<double> as_float(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  if (error != std::errc() || text.find('(') != std::string_view::npos) return std::nullopt;
  return value;
}

OptionScalar parse_scalar(std::string_view text) {
  text = trimmed(text);
  if (const auto integer = as_integer(text)) return *integer;
  if (const auto number = as_float(text)) return *number;
  return std::string(trimmed(text, "\"'"));
}

std::optional<double> to_number(const OptionScalar& scalar) {
  if (const auto* integer = std::get_if<std::int64_t>(&scalar)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&scalar)) return *number;
  return std::nullopt;
}

/// One scalar of `argument`, converted by `convert`, which gives nothing for a value of the wrong kind.
template <typename T, typename Convert>
PerName<T> parse_scalars(std::string_view option, const std::vector<std::string>& arguments, const Convert& convert,
                         const std::string& expected, const std::string& example) {
  PerName<T> result;
  for (const std::string& argument : arguments) {
    const NameAndText split = split_name(argument);
    const OptionValue value = parse_value(split.text);
    std::optional<T> converted;
    if (!value.is_list && value.items.size() == 1) converted = convert(value.items[0]);
    if (!converted) fail(option, argument, expected, example);
    result.set(split.name, std::move(*converted));
  }
  return result;
}

/// "1x3x224x224"; "" is a scalar.
std::optional<Shape> parse_old_shape(std::string_view text) {
  Shape shape;
  while (!text.empty()) {
    const std::size_t end = text.find('x');
    const auto dimension = as_integer(text.substr(0, end));
    if (!dimension) return std::nullopt;
    shape.push_back(*dimension);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) return std::nullopt;
  }
  return shape;
}

}  // namespace

NameAndText split_name(std::string_view argument) {
  const std::size_t colon = argument.rfind(':');
  if (colon == std::string_view::npos) return {"", std::string(argument)};
  return {std::string(argument.substr(0, colon)), std::string(argument.substr(colon + 1))};
}

OptionValue parse_value(std::string_view text) {
  text = trimmed(text);
  OptionValue result;
  const std::string_view inner = trimmed(text, "[]");
  result.is_list = inner.size() != text.size();
  if (!result.is_list) {
    result.items.push_back(parse_scalar(text));
    return result;
  }
  if (trimmed(inner).empty()) return result;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = inner.find(',', begin);
    const std::string_view item = trimmed(inner.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
    // A comma before the closing bracket ends the list, as in Python.
    if (!(item.empty() && comma == std::string_view::npos && begin > 0)) result.items.push_back(parse_scalar(item));
    if (comma == std::string_view::npos) return result;
    begin = comma + 1;
  }
}

PerName<double> parse_numbers(std::string_view option, const std::vector<std::string>& arguments) {
  return parse_scalars<double>(option, arguments, to_number, "a number, or NAME:NUMBER",
                               std::string(option) + " 1e-3, or " + std::string(option) + " output:1e-3");
}

PerName<std::string> number_texts(const std::vector<std::string>& arguments) {
  PerName<std::string> result;
  for (const std::string& argument : arguments) {
    NameAndText split = split_name(argument);
    const OptionScalar scalar = parse_scalar(split.text);
    if (const auto* integer = std::get_if<std::int64_t>(&scalar))
      result.set(std::move(split.name), std::to_string(*integer));
    else if (const auto* number = std::get_if<double>(&scalar))
      result.set(std::move(split.name), python_float(*number));
  }
  return result;
}

PerName<std::int64_t> parse_integers(std::string_view option, const std::vector<std::string>& arguments) {
  const auto convert = [](const OptionScalar& scalar) -> std::optional<std::int64_t> {
    const auto* integer = std::get_if<std::int64_t>(&scalar);
    return integer != nullptr ? std::optional(*integer) : std::nullopt;
  };
  return parse_scalars<std::int64_t>(option, arguments, convert, "an integer, or NAME:INTEGER",
                                     std::string(option) + " 1, or " + std::string(option) + " output:1");
}

PerName<std::string> parse_strings(std::string_view option, const std::vector<std::string>& arguments) {
  PerName<std::string> result;
  for (const std::string& argument : arguments) {
    NameAndText split = split_name(argument);
    const std::string_view text = trimmed(trimmed(split.text), "\"'");
    if (text.empty()) fail(option, argument, "a word, or NAME:WORD", std::string(option) + " NAME:WORD");
    result.set(std::move(split.name), std::string(text));
  }
  return result;
}

PerName<ValueRange> parse_ranges(std::string_view option, const std::vector<std::string>& arguments) {
  PerName<ValueRange> result;
  for (const std::string& argument : arguments) {
    NameAndText split = split_name(argument);
    const OptionValue value = parse_value(split.text);
    std::optional<double> low, high;
    if (value.is_list && value.items.size() == 2) {
      low = to_number(value.items[0]);
      high = to_number(value.items[1]);
    }
    if (!low || !high) {
      // As Polygraphy has it, for scripts that look for these words.
      const std::string why = !value.is_list            ? ""
                              : value.items.size() != 2 ? " (expected to receive exactly 2 values, but received " +
                                                              std::to_string(value.items.size()) + ")"
                                                        : " (one of them could not be parsed as a number)";
      fail(option, argument, "two numbers as [LOW,HIGH], or NAME:[LOW,HIGH]" + why,
           std::string(option) + " \"input:[0,1]\"");
    }
    if (*low > *high) fail(option, argument, "the lower bound first", std::string(option) + " \"input:[0,1]\"");
    result.set(std::move(split.name), {*low, *high});
  }
  return result;
}

std::vector<std::pair<std::string, Shape>> parse_shapes(std::string_view option,
                                                        const std::vector<std::string>& arguments) {
  const std::string example = std::string(option) + " \"input:[1,3,224,224]\"";
  std::vector<std::pair<std::string, Shape>> result;
  for (const std::string& argument : arguments) {
    NameAndText split = split_name(argument);
    const OptionValue value = parse_value(split.text);
    if (value.is_list && !split.name.empty()) {
      Shape shape;
      for (const OptionScalar& item : value.items) {
        const auto* dimension = std::get_if<std::int64_t>(&item);
        if (std::holds_alternative<double>(item)) fail(option, argument, "whole numbers as dimensions", example);
        shape.push_back(dimension != nullptr ? *dimension : -1);
      }
      result.emplace_back(std::move(split.name), std::move(shape));
      continue;
    }
    // Up to Polygraphy 0.21: "name,1x3x224x224"; names may have commas too.
    const std::size_t comma = argument.rfind(',');
    const auto old_shape = comma == std::string::npos || comma == 0
                               ? std::nullopt
                               : parse_old_shape(std::string_view(argument).substr(comma + 1));
    if (!old_shape) fail(option, argument, "NAME:[DIMENSIONS]", example);
    result.emplace_back(argument.substr(0, comma), *old_shape);
  }
  return result;
}

PerName<TopK> parse_top_k(std::string_view option, const std::vector<std::string>& arguments) {
  PerName<TopK> result;
  for (const std::string& argument : arguments) {
    NameAndText split = split_name(argument);
    const auto bad = [&]() {
      fail(option, argument, "top-K, or OUTPUT:top-K,axis=A",
           std::string(option) + " top-5, or " + std::string(option) + " \"output:top-5,axis=1\"");
    };
    std::string_view text = trimmed(split.text);
    if (!text.starts_with("top-")) bad();
    text.remove_prefix(4);
    TopK top_k;
    const std::size_t comma = text.find(',');
    const auto k = as_integer(trimmed(text.substr(0, comma)));
    if (!k || *k < 1) bad();
    top_k.k = *k;
    if (comma != std::string_view::npos) {
      std::string_view axis_text = trimmed(text.substr(comma + 1));
      if (!axis_text.starts_with("axis=")) bad();
      const auto axis = as_integer(trimmed(axis_text.substr(5)));
      if (!axis) bad();
      top_k.axis = *axis;
    }
    result.set(std::move(split.name), top_k);
  }
  return result;
}

}  // namespace ulpscope
