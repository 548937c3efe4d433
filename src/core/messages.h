// Errors and log messages in the form of fmt. Without values to put in, a text is taken as it is.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {

template <typename... T>
Error error_of(ErrorCode code, fmt::format_string<T...> text, T&&... values) {
  return {code, fmt::format(text, std::forward<T>(values)...)};
}

inline Error invalid_argument(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }
template <typename... T>
  requires(sizeof...(T) > 0)
Error invalid_argument(fmt::format_string<T...> text, T&&... values) {
  return error_of(ErrorCode::kInvalidArgument, text, std::forward<T>(values)...);
}

inline Error invalid_file(const std::string& message) { return {ErrorCode::kInvalidFile, message}; }
template <typename... T>
  requires(sizeof...(T) > 0)
Error invalid_file(fmt::format_string<T...> text, T&&... values) {
  return error_of(ErrorCode::kInvalidFile, text, std::forward<T>(values)...);
}

inline Error unsupported(const std::string& message) { return {ErrorCode::kUnsupported, message}; }
template <typename... T>
  requires(sizeof...(T) > 0)
Error unsupported(fmt::format_string<T...> text, T&&... values) {
  return error_of(ErrorCode::kUnsupported, text, std::forward<T>(values)...);
}

template <typename... T>
  requires(sizeof...(T) > 0)
void log_verbose(fmt::format_string<T...> text, T&&... values) {
  log_verbose(fmt::format(text, std::forward<T>(values)...));
}
template <typename... T>
  requires(sizeof...(T) > 0)
void log_info(fmt::format_string<T...> text, T&&... values) {
  log_info(fmt::format(text, std::forward<T>(values)...));
}
template <typename... T>
  requires(sizeof...(T) > 0)
void log_warning(fmt::format_string<T...> text, T&&... values) {
  log_warning(fmt::format(text, std::forward<T>(values)...));
}
template <typename... T>
  requires(sizeof...(T) > 0)
void log_once(LogLevel level, fmt::format_string<T...> text, T&&... values) {
  log_once(level, fmt::format(text, std::forward<T>(values)...));
}
template <typename... T>
  requires(sizeof...(T) > 0)
void log_error(fmt::format_string<T...> text, T&&... values) {
  log_error(fmt::format(text, std::forward<T>(values)...));
}

}  // namespace ulpscope
