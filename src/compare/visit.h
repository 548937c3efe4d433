// Calls a function with the C++ type of a tensor's elements.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "core/element_types.h"
#include "formats/rounding.h"
#include "ulpscope/error.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// function(T{}) for the type T that holds the elements; types with another physical type must have been cast before.
/// Throws InternalError for other types.
template <typename Function>
auto visit_type(DataType type, Function&& function) {
  const auto check = [&](bool found) {
    if (!found) throw InternalError("visit_type: no C++ type holds " + std::string(name_of(type)));
  };
  using Result = std::invoke_result_t<Function&, float>;
  if constexpr (std::is_void_v<Result>) {
    check(visit_type(AllTypes{}, type, function));
  } else {
    std::optional<Result> result;
    check(visit_type(AllTypes{}, type, [&](auto element) { result.emplace(function(element)); }));
    return *std::move(result);
  }
}

/// Narrow types as their physical type, which holds their values exactly; others as they are.
inline Tensor widen(const Tensor& tensor) {
  const DataType physical = physical_type(tensor.type());
  return physical == tensor.type() ? tensor : tensor.cast(physical);
}

}  // namespace ulpscope
