// Where the elements of a tensor come from while they are not in memory.
#pragma once

#include <cstdint>
#include <memory>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// Gives the same elements every time. Thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// All elements, in a tensor that nobody else has.
  virtual Tensor make() const = 0;
  /// Whether read() gives a part without the others.
  virtual bool has_parts() const noexcept { return false; }
  /// `count` elements from number `begin` on, as the tensor's type. REQUIRES: has_parts().
  virtual void read(std::int64_t begin, std::int64_t count, void* out) const;
  /// What was read of a mapped file leaves memory until it is read again.
  virtual void release() const noexcept {}
};

/// For what keeps tensors without keeping them alive.
struct TensorAccess {
  /// A handle on what Tensor::place() and Tensor::buffer() gave.
  static Tensor handle(DataType type, Shape shape, const void* place, bool deferred, std::shared_ptr<const void> owner);
  static bool is_deferred(const Tensor& tensor) noexcept;
};

}  // namespace ulpscope
