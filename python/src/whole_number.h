// Whole numbers that users give.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string_view>

namespace ulpscope::python {

/// Throws Error(kInvalidArgument), which begins with `where`, for anything but a whole number of 64 bits.
std::int64_t to_whole_number(nanobind::handle value, std::string_view where);

/// That many threads, or none that a machine can have: then Error(kInvalidArgument).
int to_threads(nanobind::handle value, std::string_view where);

/// 0 or more bytes, else Error(kInvalidArgument).
std::size_t to_bytes(nanobind::handle value, std::string_view where);

}  // namespace ulpscope::python
