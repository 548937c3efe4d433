#include "runtime/plan_values.h"

#include <cmath>
#include <limits>

namespace ulpscope::plan {

std::int64_t integer(const Json& json, std::int64_t low, std::int64_t high) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const bool fits = json.is_number_integer() &&
                    !(json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(kMost));
  const std::int64_t value = fits ? json.get<std::int64_t>() : 0;
  if (!fits || value < low || value > high)
    fail("expected a whole number from {} to {}, got {}", low, high,
         json.is_number() ? json.dump() : std::string(json.type_name()));
  return value;
}

std::vector<std::int64_t> integers(const Json& json, std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> result;
  for (const Json& each : json.get_ref<const Json::array_t&>()) result.push_back(integer(each, low, high));
  return result;
}

std::vector<std::int64_t> integers(const Json& json) {
  return integers(json, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}

float real(const Json& json) {
  const double value = json.get<double>();
  if (!json.is_number() || (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()))
    fail("expected a float32, got {}", json.is_number() ? json.dump() : std::string(json.type_name()));
  return static_cast<float>(value);
}

std::vector<float> reals(const Json& json) {
  std::vector<float> result;
  for (const Json& each : json.get_ref<const Json::array_t&>()) result.push_back(real(each));
  return result;
}

DataType data_type(const Json& json) {
  const auto& name = json.get_ref<const std::string&>();
  if (name == name_of(DataType::kUndefined)) return DataType::kUndefined;
  const auto type = data_type_from_name(name);
  if (!type) fail("expected an element type, got '{}'", name);
  return *type;
}

Request request(const Json& json) {
  const auto found = request_named(json.get_ref<const std::string&>());
  if (!found) fail("expected a precision or an element type, got {}", json.dump());
  return *found;
}

Shape shape_of(const Json& json, std::int64_t lowest) {
  return integers(json, lowest, std::numeric_limits<std::int64_t>::max());
}

std::map<std::string, Shape> named_shapes(const Json& json) {
  std::map<std::string, Shape> result;
  for (const auto& [name, shape] : json.get_ref<const Json::object_t&>()) result[name] = shape_of(shape, -1);
  return result;
}

}  // namespace ulpscope::plan
