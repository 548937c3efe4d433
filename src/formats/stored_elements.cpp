#include "formats/stored_elements.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "core/file.h"
#include "core/parallel.h"
#include "formats/coded_elements.h"
#include "formats/convert.h"

namespace ulpscope {

StoredElements::StoredElements(DataType type, Shape shape, DataType stored, const void* bytes,
                               std::shared_ptr<const void> owner)
    : type_(type),
      shape_(std::move(shape)),
      stored_(stored),
      bytes_(static_cast<const std::byte*>(bytes)),
      owner_(std::move(owner)) {}

Tensor StoredElements::convert(const Tensor& tensor, DataType type) {
  if (tensor.bytes() < kLeastBytes) return tensor.cast(type);
  const auto source = tensor.source();
  if (is_storage_only(tensor.type())) {
    const auto* coded = dynamic_cast<const CodedElements*>(source.get());
    if (source != nullptr && coded == nullptr) return tensor.cast(type);
    const auto owner = std::make_shared<const Tensor>(tensor);
    const CodedElements::Codes codes =
        coded != nullptr
            ? coded->codes()
            : CodedElements::Codes{tensor.type(), static_cast<const std::byte*>(owner->raw()), false, owner};
    return Tensor::deferred(type, tensor.shape(), std::make_shared<CodedElements>(type, tensor.shape(), codes));
  }
  if (source == nullptr) {
    const auto owner = std::make_shared<const Tensor>(tensor);
    return Tensor::deferred(type, tensor.shape(),
                            std::make_shared<StoredElements>(type, tensor.shape(), tensor.type(), owner->raw(), owner));
  }
  const auto* stored = dynamic_cast<const StoredElements*>(source.get());
  if (stored == nullptr || stored->stored_ != tensor.type()) return tensor.cast(type);
  return Tensor::deferred(
      type, tensor.shape(),
      std::make_shared<StoredElements>(type, tensor.shape(), stored->stored_, stored->bytes_, stored->owner_));
}

Tensor StoredElements::make() const {
  constexpr std::int64_t kPiece = std::int64_t{1} << 22, kGrain = 1 << 16;
  Tensor result(type_, shape_);
  auto* const out = static_cast<std::byte*>(result.raw());
  // Piece by piece, so that the source and the copy are never both in memory as a whole.
  for (std::int64_t at = 0; at < result.size(); at += kPiece) {
    const std::int64_t count = std::min(kPiece, result.size() - at);
    parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      read(at + begin, end - begin, out + static_cast<std::size_t>(at + begin) * size_of(type_));
    });
    MappedFile::release(bytes_ + static_cast<std::size_t>(at) * size_of(stored_),
                        static_cast<std::size_t>(count) * size_of(stored_));
  }
  return result;
}

void StoredElements::read(std::int64_t begin, std::int64_t count, void* out) const {
  const std::size_t from = size_of(stored_), to = size_of(type_);
  const std::byte* in = bytes_ + static_cast<std::size_t>(begin) * from;
  if (stored_ == type_) {
    if (count > 0) std::memcpy(out, in, static_cast<std::size_t>(count) * from);
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(in) % from == 0)
    return convert_elements(stored_, in, type_, out, static_cast<std::size_t>(count));
  constexpr std::size_t kAligned = 8192;
  alignas(64) std::byte aligned[kAligned];
  const std::size_t most = kAligned / from;
  auto* target = static_cast<std::byte*>(out);
  for (std::size_t left = static_cast<std::size_t>(count); left > 0;) {
    const std::size_t some = std::min(left, most);
    std::memcpy(aligned, in, some * from);
    convert_elements(stored_, aligned, type_, target, some);
    in += some * from;
    target += some * to;
    left -= some;
  }
}

void StoredElements::release() const noexcept {
  MappedFile::release(bytes_, static_cast<std::size_t>(num_elements(shape_)) * size_of(stored_));
}

void read_elements(const Tensor& tensor, std::int64_t begin, std::int64_t count, void* out) {
  if (const auto source = tensor.source()) return source->read(begin, count, out);
  const std::size_t size = size_of(tensor.type());
  if (count > 0)
    std::memcpy(out, static_cast<const std::byte*>(tensor.raw()) + static_cast<std::size_t>(begin) * size,
                static_cast<std::size_t>(count) * size);
}

void release_elements(const Tensor& tensor) {
  if (const auto source = tensor.source())
    source->release();
  else
    MappedFile::release(tensor.raw(), tensor.bytes());
}

bool any_elements(const Tensor& tensor, const std::function<bool(std::span<const float>)>& holds) {
  constexpr std::int64_t kRun = 1 << 14, kGrain = 1 << 18;
  if (!has_parts(tensor)) return any_elements(tensor.in_memory(), holds);
  const float* const there = tensor.source() == nullptr ? tensor.data<float>() : nullptr;
  std::atomic<bool> found = false;
  parallel_for(tensor.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> read(there == nullptr ? static_cast<std::size_t>(std::min(kRun, end - begin)) : 0);
    for (std::int64_t at = begin; at < end && !found; at += kRun) {
      const std::int64_t count = std::min(kRun, end - at);
      if (there == nullptr) read_elements(tensor, at, count, read.data());
      if (holds({there == nullptr ? read.data() : there + at, static_cast<std::size_t>(count)})) found = true;
    }
  });
  release_elements(tensor);
  return found;
}

bool has_parts(const Tensor& tensor) {
  const auto source = tensor.source();
  return source == nullptr || source->has_parts();
}

}  // namespace ulpscope
