// Elements that stay where a file has them until they are needed: not aligned, or in a narrower type.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/tensor_source.h"

namespace ulpscope {

class StoredElements final : public TensorSource {
 public:
  /// `bytes`: elements of type `stored` that `owner` keeps, aligned or not; those of a mapped file leave memory after
  /// make(). `type` is that of the tensor. REQUIRES: elements of both have whole bytes.
  StoredElements(DataType type, Shape shape, DataType stored, const void* bytes, std::shared_ptr<const void> owner);

  /// The values of a large tensor in another type, which make a copy when they are asked for; a cast of a small one.
  static Tensor convert(const Tensor& tensor, DataType type);

  Tensor make() const override;
  bool has_parts() const noexcept override { return true; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override;
  void release() const noexcept override;
  DataType stored() const noexcept { return stored_; }
  /// The elements as they are stored; not always aligned.
  const std::byte* bytes() const noexcept { return bytes_; }

  /// Smaller tensors are better copied at once.
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 18;

 private:
  DataType type_;
  Shape shape_;
  DataType stored_;
  const std::byte* bytes_;
  std::shared_ptr<const void> owner_;
};

/// The elements from number `begin` on, whether they are in memory or not. REQUIRES: has_parts() of their source.
void read_elements(const Tensor& tensor, std::int64_t begin, std::int64_t count, void* out);
/// What was read of a mapped file leaves memory until it is read again.
void release_elements(const Tensor& tensor);
/// Whether this holds of some run of a float32 tensor's elements; runs are read on all threads, and leave memory.
bool any_elements(const Tensor& tensor, const std::function<bool(std::span<const float>)>& holds);
/// read_elements() can be called: no part of the tensor makes all of it.
bool has_parts(const Tensor& tensor);

}  // namespace ulpscope
