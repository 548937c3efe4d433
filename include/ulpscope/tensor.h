// A dense, row-major array of one element type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "ulpscope/data_type.h"
#include "ulpscope/export.h"
#include "ulpscope/shape.h"

namespace ulpscope {

class TensorSource;

/// A handle on a buffer: copying shares the bytes (as an assignment of NumPy arrays does), `clone` copies them.
/// Thread-safe as shared_ptr is: distinct handles may be used from distinct threads; the bytes are not guarded.
class ULPSCOPE_API Tensor {
 public:
  /// No tensor: undefined type, no bytes.
  Tensor() = default;

  /// Allocates, 64-byte aligned; the elements are not initialized. Throws Error(kInvalidArgument) for a negative
  /// dimension or a type without a size, std::bad_alloc when memory is short.
  Tensor(DataType type, Shape shape);

  /// Refers to bytes owned by `owner` (a mapped file, an arena), which lives at least as long as any handle.
  /// REQUIRES: `data` is aligned to the element size and holds num_elements(shape) elements.
  static Tensor borrow(DataType type, Shape shape, void* data, std::shared_ptr<const void> owner);

  /// Elements that are made when somebody asks for them: `source` says how (core/tensor_source.h). What asks for a
  /// pointer makes them once, for all handles; in_memory() leaves that to its caller.
  static Tensor deferred(DataType type, Shape shape, std::shared_ptr<const TensorSource> source);

  /// A tensor with these elements, in row-major order. T is the C++ type of `type_of<T>()`.
  template <typename T>
  static Tensor of(Shape shape, std::span<const T> values);
  template <typename T>
  static Tensor of(Shape shape, std::initializer_list<T> values) {
    return of<T>(std::move(shape), std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor scalar(T value) {
    return of<T>({}, std::span<const T>(&value, 1));
  }

  explicit operator bool() const noexcept { return type_ != DataType::kUndefined; }
  DataType type() const noexcept { return type_; }
  const Shape& shape() const noexcept { return shape_; }
  std::int64_t rank() const noexcept { return static_cast<std::int64_t>(shape_.size()); }
  /// Number of elements and of bytes.
  std::int64_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(size_) * size_of(type_); }

  /// Expires when no handle refers to the bytes any more; empty when nobody owns them.
  std::weak_ptr<const void> buffer() const noexcept { return owner_; }

  void* raw() { return deferred_ ? made() : data_; }
  const void* raw() const { return deferred_ ? made() : data_; }

  /// What makes the elements; null once they are in memory, and for all tensors that were not deferred.
  std::shared_ptr<const TensorSource> source() const;
  /// This tensor; where its elements are not in memory, one that has them alone, so that they leave with it.
  Tensor in_memory() const;
  /// Where the elements are, or will be made of: tells apart what is alive, and touches nothing.
  const void* place() const noexcept { return deferred_ ? owner_.get() : data_; }

  /// The elements. T must be the C++ type of the element type (float, double, std::int64_t, bool, ...; std::uint16_t
  /// for the bits of float16 and bfloat16, std::uint8_t for those of narrower types). Throws InternalError if it is
  /// not.
  template <typename T>
  T* data();
  template <typename T>
  const T* data() const;
  template <typename T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<std::size_t>(size_)};
  }

  /// The same bytes under another shape of as many elements.
  Tensor reshaped(Shape shape) const;
  /// A copy of the bytes.
  Tensor clone() const;
  /// A new tensor whose elements are converted as C++ (and NumPy's astype) would; narrow floats round to nearest even.
  Tensor cast(DataType type) const;

 private:
  DataType type_ = DataType::kUndefined;
  Shape shape_;
  std::int64_t size_ = 0;
  struct Deferred;
  friend struct TensorAccess;
  void* made() const;

  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;  ///< A Deferred where `deferred_`.
  bool deferred_ = false;
};

/// The element type that a C++ type stands for.
template <typename T>
constexpr DataType type_of() noexcept {
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DataType::kFloat32 : DataType::kFloat64;
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  // Signed and unsigned in turn, from 8 to 64 bits.
  return static_cast<DataType>(static_cast<int>(DataType::kInt8) + 2 * (std::bit_width(sizeof(T)) - 1) +
                               (std::is_unsigned_v<T> ? 1 : 0));
}

namespace detail {
[[noreturn]] ULPSCOPE_API void throw_wrong_element_type(DataType actual, DataType asked);
/// float16 and bfloat16 are handed out as the 16-bit words that hold them, types that only hold values as bytes.
constexpr bool same_storage(DataType actual, DataType asked) noexcept {
  return actual == asked ||
         (asked == DataType::kUInt16 && (actual == DataType::kFloat16 || actual == DataType::kBFloat16)) ||
         (asked == DataType::kUInt8 && actual >= DataType::kFloat8E4M3 && actual <= DataType::kUInt2);
}
}  // namespace detail

template <typename T>
T* Tensor::data() {
  if (!detail::same_storage(type_, type_of<T>())) detail::throw_wrong_element_type(type_, type_of<T>());
  return static_cast<T*>(raw());
}

template <typename T>
const T* Tensor::data() const {
  if (!detail::same_storage(type_, type_of<T>())) detail::throw_wrong_element_type(type_, type_of<T>());
  return static_cast<const T*>(raw());
}

template <typename T>
Tensor Tensor::of(Shape shape, std::span<const T> values) {
  Tensor result(type_of<T>(), std::move(shape));
  if (static_cast<std::size_t>(result.size()) != values.size())
    detail::throw_wrong_element_type(result.type(), result.type());
  T* out = result.data<T>();
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return result;
}

}  // namespace ulpscope
