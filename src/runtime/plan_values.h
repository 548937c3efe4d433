// Values of a plan file's description, checked as they are read: each throws Error(kInvalidFile) for what is no such
// value.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/messages.h"
#include "graph/layer_form.h"
#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"

namespace ulpscope::plan {

using Json = nlohmann::json;

template <typename... T>
[[noreturn]] void fail(fmt::format_string<T...> text, T&&... values) {
  throw invalid_file(fmt::format(text, std::forward<T>(values)...));
}

std::int64_t integer(const Json& json, std::int64_t low, std::int64_t high);
std::vector<std::int64_t> integers(const Json& json, std::int64_t low, std::int64_t high);
std::vector<std::int64_t> integers(const Json& json);

/// An enumerator by its number.
template <typename Enum>
Enum enumerator(const Json& json, Enum last) {
  return static_cast<Enum>(integer(json, 0, static_cast<std::int64_t>(last)));
}

float real(const Json& json);
std::vector<float> reals(const Json& json);
DataType data_type(const Json& json);
Request request(const Json& json);
/// `lowest`: -1 where dimensions may be unknown, else 0.
Shape shape_of(const Json& json, std::int64_t lowest);
std::map<std::string, Shape> named_shapes(const Json& json);

}  // namespace ulpscope::plan
