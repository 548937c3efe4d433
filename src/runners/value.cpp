#include "runners/value.h"

#include <algorithm>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

const Value& null_value() {
  static const Value value;
  return value;
}

constexpr std::string_view kKindNames[] = {"nothing",  "a bool", "an integer", "a number",
                                           "a string", "a list", "a dict",     "an array"};

}  // namespace

void Value::throw_not(std::string_view expected) const {
  throw error_of(ErrorCode::kScript, "[script] worker: expected {}, got {}", expected, kKindNames[data_.index()]);
}

std::int64_t Value::integer() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  return as<std::int64_t>("an integer");
}

double Value::real() const {
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*value);
  return as<double>("a number");
}

Shape Value::shape() const {
  Shape result;
  for (const Value& dim : array()) result.push_back(dim.integer());
  return result;
}

std::vector<std::string> Value::strings() const {
  std::vector<std::string> result;
  for (const Value& item : array()) result.push_back(item.text());
  return result;
}

const Value& Value::operator[](std::string_view key) const {
  const Map& entries = map();
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return entry.first == key; });
  return found == entries.end() ? null_value() : found->second;
}

void Value::set(std::string key, Value value) {
  if (is_null()) data_ = Map{};
  Map& entries = map();
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return entry.first == key; });
  if (found == entries.end())
    entries.emplace_back(std::move(key), std::move(value));
  else
    found->second = std::move(value);
}

void Value::push(Value value) {
  if (is_null()) data_ = Array{};
  array().push_back(std::move(value));
}

}  // namespace ulpscope
