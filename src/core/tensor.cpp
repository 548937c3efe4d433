#include "ulpscope/tensor.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "core/memory.h"
#include "ulpscope/error.h"

namespace ulpscope {

Tensor::Tensor(DataType type, Shape shape) : type_(type), shape_(std::move(shape)) {
  for (std::int64_t dim : shape_)
    if (dim < 0)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("a tensor cannot have the shape {}", to_string(shape_)));
  if (size_of(type) == 0)
    throw Error(ErrorCode::kUnsupported, fmt::format("tensors of type {} are not supported", name_of(type)));
  if (const std::string reason = why_too_large(type, shape_); !reason.empty())
    throw Error(ErrorCode::kInvalidArgument, reason);
  size_ = num_elements(shape_);
  auto block = allocate_elements(bytes());
  data_ = block.get();
  owner_ = std::move(block);
}

Tensor Tensor::borrow(DataType type, Shape shape, void* data, std::shared_ptr<const void> owner) {
  Tensor result;
  result.type_ = type;
  result.shape_ = std::move(shape);
  result.size_ = num_elements(result.shape_);
  result.data_ = data;
  result.owner_ = std::move(owner);
  return result;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (num_elements(shape) != size_)
    throw InternalError(fmt::format("cannot view {} as {}", to_string(shape_), to_string(shape)));
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::clone() const {
  if (!*this) return {};
  Tensor result(type_, shape_);
  if (bytes() != 0) std::memcpy(result.data_, data_, bytes());
  return result;
}

// Tensor::cast is in formats/: what numbers mean is not known here.

void detail::throw_wrong_element_type(DataType actual, DataType asked) {
  throw InternalError(fmt::format("elements of type {} were accessed as {}", name_of(actual), name_of(asked)));
}

}  // namespace ulpscope
