// ops::fail() with values to put into its text.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "ops/common.h"

namespace ulpscope::ops {

template <typename... T>
  requires(sizeof...(T) > 0)
[[noreturn]] void fail(const Layer& layer, fmt::format_string<T...> text, T&&... values) {
  fail(layer, fmt::format(text, std::forward<T>(values)...));
}

}  // namespace ulpscope::ops
