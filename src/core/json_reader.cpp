#include "core/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/messages.h"

namespace ulpscope::json {
namespace {

std::string kind_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return "'" + (text.size() > 60 ? text.substr(0, 60) + "..." : text) + "'";
    }
    case Json::value_t::boolean:
      return json.get<bool>() ? "true" : "false";
    case Json::value_t::null:
      return "null";
    default:
      return json.dump();
  }
}

}  // namespace

Json from_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

void Reader::fail(const std::string& expected) const {
  throw invalid_file(where_ + ": " + (path_.empty() ? "" : path_ + ": ") + "expected " + expected + ", got " +
                     kind_of(*json_));
}

bool Reader::has(const char* key) const { return json_->is_object() && json_->contains(key); }

Reader Reader::at(const char* key) const {
  if (!json_->is_object()) fail("an object");
  const auto found = json_->find(key);
  if (found == json_->end())
    throw invalid_file(where_ + ": " + (path_.empty() ? "" : path_ + ": ") + "expected the key \"" + key + "\"");
  return Reader(*found, where_, path_.empty() ? key : path_ + "." + key);
}

double Reader::real() const {
  if (json_->is_number()) return json_->get<double>();
  if (json_->is_string()) {
    const auto& text = json_->get_ref<const std::string&>();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  }
  fail("a number");
}

std::int64_t Reader::integer() const {
  if (json_->is_number_unsigned() && json_->get<std::uint64_t>() > std::uint64_t{1} << 62) fail("a smaller number");
  if (json_->is_number_integer()) return json_->get<std::int64_t>();
  fail("a whole number");
}

bool Reader::boolean() const {
  if (!json_->is_boolean()) fail("true or false");
  return json_->get<bool>();
}

std::string Reader::text() const {
  if (!json_->is_string()) fail("text");
  return json_->get<std::string>();
}

std::size_t to_place(const Reader& reader, std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, reader.text());
  if (found == names.end()) reader.fail(fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

double not_negative(const Reader& reader) {
  const double value = reader.real();
  if (!(value >= 0) || std::isinf(value)) reader.fail("a number of 0 or more");
  return value;
}

std::vector<double> to_reals(const Reader& reader, std::size_t count, const std::string& expected) {
  std::vector<double> values;
  reader.each([&](const Reader& each) { values.push_back(each.real()); });
  if (values.size() != count) reader.fail(expected);
  return values;
}

std::vector<std::string> to_texts(const Reader& reader) {
  std::vector<std::string> result;
  reader.each([&](const Reader& each) { result.push_back(each.text()); });
  return result;
}

bool parse(std::string_view text, Json& json) {
  try {
    json = Json::parse(text.begin(), text.end());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

}  // namespace ulpscope::json
