// Values as bytes: MessagePack, with tensors beside it.
//
// A tensor is an extension of type 1 whose body is the MessagePack array [type name, shape, offset]; its bytes lie at
// that offset (a multiple of 64) of the frame's shared memory. python/ulpscope/worker/protocol.py is the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runners/value.h"

namespace ulpscope {

inline constexpr std::size_t kFrameHeaderBytes = 32;

enum class FrameKind : std::uint8_t { kRequest = 1, kResponse = 2, kError = 3 };

/// Little endian: "ULPW", version (1), kind, two bytes of zeros, the request's number (4 bytes), four bytes of zeros,
/// length of the message and of the shared memory (8 bytes each). Shared memory comes as a file descriptor with the
/// header.
struct FrameHeader {
  FrameKind kind = FrameKind::kRequest;
  std::uint32_t id = 0;
  std::uint64_t message_bytes = 0;
  std::uint64_t shared_bytes = 0;

  void write(std::span<std::byte, kFrameHeaderBytes> out) const;
  /// Throws Error(kScript) for anything that is not a frame.
  static FrameHeader read(std::span<const std::byte, kFrameHeaderBytes> in);
};

/// A value packed: the message, and the tensors that go to shared memory at their offsets.
struct PackedMessage {
  std::string message;
  std::vector<std::pair<std::uint64_t, Tensor>> tensors;
  std::uint64_t shared_bytes = 0;
};

PackedMessage pack(const Value& value);

/// `shared` outlives the tensors of the result through `owner`. Throws Error(kScript) for malformed messages, tensors
/// outside of the shared memory and the like.
Value unpack(std::string_view message, std::span<std::byte> shared, const std::shared_ptr<const void>& owner);

/// Anonymous shared memory with the tensors' bytes; returns a file descriptor that the caller closes. Throws
/// Error(kIo).
int share_tensors(const PackedMessage& message);

/// A private (copy on write) mapping of `bytes` of `descriptor`, unmapped when the owner is gone.
std::pair<std::span<std::byte>, std::shared_ptr<const void>> map_shared(int descriptor, std::uint64_t bytes);

}  // namespace ulpscope
