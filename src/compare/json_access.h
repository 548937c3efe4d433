#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ulpscope/error.h"

namespace ulpscope {

/// The key by which Polygraphy marks the class of an object.
inline constexpr const char* kClass = "polygraphy_class";

/// Throws Error: `where` is the file and the place in it, `what` what was expected there.
[[noreturn]] inline void fail_at(const std::string& where, const std::string& what,
                                 ErrorCode code = ErrorCode::kInvalidFile) {
  throw Error(code, where + ": " + what);
}

/// The value of a key. Throws Error (kInvalidFile) where there is none, or `object` is no object.
inline const nlohmann::ordered_json& member(const nlohmann::ordered_json& object, const char* key,
                                            const std::string& where) {
  if (!object.is_object()) fail_at(where, "expected an object");
  const auto found = object.find(key);
  if (found == object.end()) fail_at(where, std::string("expected the key \"") + key + "\"");
  return *found;
}

}  // namespace ulpscope
