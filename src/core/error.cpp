#include "ulpscope/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error_names.h"

namespace ulpscope {
namespace {

/// In the order of the codes.
constexpr std::array<std::string_view, 8> kNames{
    "invalid_argument", "not_found", "unsupported", "invalid_file", "io", "build", "script", "interrupted"};

}  // namespace

std::string_view name_of(ErrorCode code) noexcept { return kNames[static_cast<std::size_t>(code)]; }

ErrorCode error_code_named(std::string_view name) noexcept {
  const auto found = std::ranges::find(kNames, name);
  return found == kNames.end() ? ErrorCode::kScript : static_cast<ErrorCode>(found - kNames.begin());
}

Error::Error(ErrorCode code, const std::string& message, ErrorPlace place)
    : std::runtime_error(fmt::format("[{}] layer '{}' ({}): {}", place.stage, place.layer, place.op, message)),
      code_(code),
      place_(std::make_shared<const ErrorPlace>(std::move(place))) {}

Error Error::at(ErrorPlace place) const { return place_ ? *this : Error(code_, what(), std::move(place)); }

Error Error::of_file(const std::string& file) const {
  std::string text = what();
  const auto names = [&](const char* form) { return text.find(fmt::format(fmt::runtime(form), file)) != text.npos; };
  if (file.empty() || names("{}:") || names("'{}'")) return *this;
  const std::size_t stage = text.starts_with('[') ? text.find("] ") : text.npos;
  text.insert(stage == text.npos ? 0 : stage + 2, file + ": ");
  Error named(code_, text);
  named.place_ = place_;
  return named;
}

}  // namespace ulpscope
