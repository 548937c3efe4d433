#include "ulpscope/tensor.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "core/memory.h"
#include "core/messages.h"
#include "core/tensor_source.h"
#include "ulpscope/error.h"

namespace ulpscope {

Tensor::Tensor(DataType type, Shape shape) : type_(type), shape_(std::move(shape)) {
  for (std::int64_t dim : shape_)
    if (dim < 0) throw invalid_argument("a tensor cannot have the shape {}", to_string(shape_));
  if (size_of(type) == 0) throw unsupported("tensors of type {} are not supported", name_of(type));
  if (const std::string reason = why_too_large(type, shape_); !reason.empty()) throw invalid_argument(reason);
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

/// What all handles on one deferred tensor share.
struct Tensor::Deferred {
  std::shared_ptr<const TensorSource> source;
  mutable std::mutex mutex;
  mutable Tensor elements;  ///< Made by who asked first.
};

Tensor Tensor::deferred(DataType type, Shape shape, std::shared_ptr<const TensorSource> source) {
  auto shared = std::make_shared<Deferred>();
  shared->source = std::move(source);
  Tensor result = borrow(type, std::move(shape), nullptr, std::move(shared));
  result.deferred_ = true;
  return result;
}

void* Tensor::made() const {
  const auto& shared = *static_cast<const Deferred*>(owner_.get());
  const std::lock_guard lock(shared.mutex);
  if (!shared.elements) shared.elements = shared.source->make();
  return shared.elements.data_;
}

std::shared_ptr<const TensorSource> Tensor::source() const {
  if (!deferred_) return nullptr;
  const auto& shared = *static_cast<const Deferred*>(owner_.get());
  const std::lock_guard lock(shared.mutex);
  return shared.elements ? nullptr : shared.source;
}

Tensor Tensor::in_memory() const {
  if (!deferred_) return *this;
  if (const auto from = source()) return from->make().reshaped(shape_);
  return borrow(type_, shape_, made(), owner_);
}

Tensor TensorAccess::handle(DataType type, Shape shape, const void* place, bool deferred,
                            std::shared_ptr<const void> owner) {
  Tensor result =
      Tensor::borrow(type, std::move(shape), deferred ? nullptr : const_cast<void*>(place), std::move(owner));
  result.deferred_ = deferred;
  return result;
}

void TensorSource::read(std::int64_t, std::int64_t, void*) const {
  throw InternalError("these elements are made all at once");
}

bool TensorAccess::is_deferred(const Tensor& tensor) noexcept { return tensor.deferred_; }

Tensor Tensor::reshaped(Shape shape) const {
  if (num_elements(shape) != size_)
    throw InternalError(fmt::format("cannot view {} as {}", to_string(shape_), to_string(shape)));
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::clone() const {
  if (!*this) return {};
  if (source() != nullptr) return in_memory();
  Tensor result(type_, shape_);
  if (bytes() != 0) std::memcpy(result.data_, raw(), bytes());
  return result;
}

// Tensor::cast is in formats/: what numbers mean is not known here.

void detail::throw_wrong_element_type(DataType actual, DataType asked) {
  throw InternalError(fmt::format("elements of type {} were accessed as {}", name_of(actual), name_of(asked)));
}

}  // namespace ulpscope
