#include "backend/cuda/cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ulpscope/error.h"

namespace ulpscope::cuda::cudnn {

const Functions& functions() {
  static const Functions all;
  return all;
}

void check(int status, std::string_view what) {
  if (status == kSuccess) return;
  std::array<char, 2048> detail{};
  functions().last_error_string(detail.data(), detail.size());
  const bool unsupported = status >= kNotSupported && status < kNotSupported + 1000;
  throw Error(unsupported ? ErrorCode::kUnsupported : ErrorCode::kBuild,
              fmt::format("[build] backend 'cuda': cuDNN could not {}: {}{}{}", what, functions().error_string(status),
                          detail.front() != '\0' ? ": " : "", detail.data()));
}

Descriptor::Descriptor(DescriptorType type, const char* name) : name_(name) {
  if (const int status = functions().create_descriptor(type, &raw_); status != kSuccess)
    check(status, fmt::format("make the descriptor of {}", name_));
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) functions().destroy_descriptor(raw_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)), name_(other.name_) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(raw_, other.raw_);
  std::swap(name_, other.name_);
  return *this;
}

void Descriptor::set(Field field, FieldType type, std::int64_t count, const void* elements) {
  if (const int status = functions().set_attribute(raw_, field, type, count, elements); status != kSuccess)
    check(status, fmt::format("set attribute {} of {}", static_cast<int>(field), name_));
}

void Descriptor::finalize() {
  if (const int status = functions().finalize(raw_); status != kSuccess)
    check(status, fmt::format("finalize {}", name_));
}

std::int64_t Descriptor::read(Field field, FieldType type, std::int64_t room, void* elements) const {
  std::int64_t count = 0;
  const int status = functions().get_attribute(raw_, field, type, room, &count, elements);
  if (status != kSuccess) check(status, fmt::format("read attribute {} of {}", static_cast<int>(field), name_));
  return count;
}

std::int64_t Descriptor::read_int64(Field field) const {
  std::int64_t value = 0;
  read(field, FieldType::kInt64, 1, &value);
  return value;
}

std::vector<Descriptor> Descriptor::read_descriptors(Field field, DescriptorType type, const char* name,
                                                     std::int64_t room) const {
  // cuDNN fills descriptors that the caller made.
  std::vector<Descriptor> all;
  std::vector<RawDescriptor> raw;
  for (std::int64_t i = 0; i < room; ++i) raw.push_back(all.emplace_back(type, name).get());
  const std::int64_t count = room > 0 ? read(field, FieldType::kDescriptor, room, raw.data()) : 0;
  all.resize(static_cast<std::size_t>(std::min(count, room)));
  return all;
}

}  // namespace ulpscope::cuda::cudnn
