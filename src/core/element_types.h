// The C++ types that hold elements of tensors.
#pragma once

#include <cstdint>

#include "ulpscope/tensor.h"

namespace ulpscope {

template <typename T, typename... Ts>
struct TypeList {
  using First = T;
};
using AllTypes = TypeList<float, double, std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                          std::uint32_t, std::int64_t, std::uint64_t, bool>;

/// Calls function(T{}) for the type T of the list that holds elements of the physical type `type`. False: none does.
template <typename... Ts, typename Function>
bool visit_type(TypeList<Ts...>, DataType type, Function&& function) {
  return ((type_of<Ts>() == type && (static_cast<void>(function(Ts{})), true)) || ...);
}

}  // namespace ulpscope
