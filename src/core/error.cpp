#include "ulpscope/error.h"

#include <fmt/format.h>

#include <utility>

namespace ulpscope {

Error::Error(ErrorCode code, const std::string& message, ErrorPlace place)
    : std::runtime_error(fmt::format("[{}] layer '{}' ({}): {}", place.stage, place.layer, place.op, message)),
      code_(code),
      place_(std::make_shared<const ErrorPlace>(std::move(place))) {}

Error Error::at(ErrorPlace place) const { return place_ ? *this : Error(code_, what(), std::move(place)); }

}  // namespace ulpscope
