// Calls a function with the C++ type of a tensor's elements.
#pragma once

#include <string>
#include <type_traits>

#include "formats/rounding.h"
#include "ulpscope/error.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// function(std::type_identity<T>) for the type that holds the elements; types with another physical type must have
/// been cast before. Throws InternalError for other types.
template <typename Function>
decltype(auto) visit_type(DataType type, Function&& function) {
  switch (type) {
    case DataType::kFloat32:
      return function(std::type_identity<float>{});
    case DataType::kFloat64:
      return function(std::type_identity<double>{});
    case DataType::kInt8:
      return function(std::type_identity<std::int8_t>{});
    case DataType::kUInt8:
      return function(std::type_identity<std::uint8_t>{});
    case DataType::kInt16:
      return function(std::type_identity<std::int16_t>{});
    case DataType::kUInt16:
      return function(std::type_identity<std::uint16_t>{});
    case DataType::kInt32:
      return function(std::type_identity<std::int32_t>{});
    case DataType::kUInt32:
      return function(std::type_identity<std::uint32_t>{});
    case DataType::kInt64:
      return function(std::type_identity<std::int64_t>{});
    case DataType::kUInt64:
      return function(std::type_identity<std::uint64_t>{});
    case DataType::kBool:
      return function(std::type_identity<bool>{});
    default:
      throw InternalError("visit_type: no C++ type holds " + std::string(name_of(type)));
  }
}

/// Narrow types as their physical type, which holds their values exactly; others as they are.
inline Tensor widen(const Tensor& tensor) {
  const DataType physical = physical_type(tensor.type());
  return physical == tensor.type() ? tensor : tensor.cast(physical);
}

}  // namespace ulpscope
