// What is said between the program and the Python worker: MessagePack's types, and tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// A plain value. Maps keep their order; their keys are strings. Tensors may stand anywhere inside.
class Value {
 public:
  using Array = std::vector<Value>;
  using Map = std::vector<std::pair<std::string, Value>>;

  Value() = default;
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Map value) : data_(std::move(value)) {}
  Value(Tensor value) : data_(std::move(value)) {}

  static Value of_shape(const Shape& shape) { return Array(shape.begin(), shape.end()); }
  static Value of_strings(const std::vector<std::string>& strings) { return Array(strings.begin(), strings.end()); }

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const noexcept { return std::holds_alternative<bool>(data_); }
  bool is_string() const noexcept { return std::holds_alternative<std::string>(data_); }
  bool is_array() const noexcept { return std::holds_alternative<Array>(data_); }
  bool is_map() const noexcept { return std::holds_alternative<Map>(data_); }
  bool is_tensor() const noexcept { return std::holds_alternative<Tensor>(data_); }

  /// The value as this type. Throws Error(kScript), saying what was expected and what is there: values come from
  /// scripts. `integer` takes bools, `real` takes integers.
  bool boolean() const { return as<bool>("a bool"); }
  std::int64_t integer() const;
  double real() const;
  const std::string& text() const { return as<std::string>("a string"); }
  const Array& array() const { return as<Array>("a list"); }
  Array& array() { return const_cast<Array&>(std::as_const(*this).array()); }
  const Map& map() const { return as<Map>("a dict"); }
  Map& map() { return const_cast<Map&>(std::as_const(*this).map()); }
  const Tensor& tensor() const { return as<Tensor>("an array"); }
  Shape shape() const;
  std::vector<std::string> strings() const;

  /// The entry of a map; null (a static one) when it is absent. Throws Error(kScript) for anything but a map.
  const Value& operator[](std::string_view key) const;
  /// Adds or replaces an entry; turns null into a map.
  void set(std::string key, Value value);
  /// Appends; turns null into an array.
  void push(Value value);

  const auto& variant() const noexcept { return data_; }

 private:
  template <typename T>
  const T& as(std::string_view expected) const {
    if (const T* value = std::get_if<T>(&data_)) return *value;
    throw_not(expected);
  }
  [[noreturn]] void throw_not(std::string_view expected) const;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Map, Tensor> data_;
};

}  // namespace ulpscope
