// Numbers of things, as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ulpscope {

/// "1 layer", "3 layers".
inline std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace ulpscope
