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

/// A member that Python sets through `convert`, whose messages begin with `where`.
template <typename Options, typename Base, typename Value, typename Convert>
void def_number(nanobind::class_<Options>& options, const char* name, Value Base::* member, Convert convert,
                const char* where) {
  options.def_prop_rw(
      name, [member](const Options& self) { return self.*member; },
      [member, convert, where](Options& self, nanobind::handle value) { self.*member = convert(value, where); },
      nanobind::for_setter(nanobind::arg("value").none()));
}

}  // namespace ulpscope::python
