// The protobuf wire format, read in place (https://protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ulpscope::onnx_wire {

/// The field of ModelProto that holds its graph.
inline constexpr std::uint32_t kModelGraph = 7;

enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  std::uint32_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t varint = 0;            ///< The value, for kVarint.
  std::span<const std::byte> payload;  ///< The content, for the other types.
  std::span<const std::byte> whole;    ///< Tag, length and content as they stand in the file.
};

/// Walks over the fields of one message without copying or touching the contents of long fields.
class Reader {
 public:
  /// `origin` is where the file begins, for messages.
  Reader(std::span<const std::byte> message, const std::byte* origin) noexcept : rest_(message), origin_(origin) {}

  /// The next field; false at the end. Throws Error(kInvalidFile) with the offset when the bytes are no message.
  bool next(Field& field);
  /// True when nothing is left.
  bool done() const noexcept { return rest_.empty(); }
  /// Where the next field begins.
  const std::byte* position() const noexcept { return rest_.data(); }
  /// One bare varint (packed fields).
  std::uint64_t varint();

 private:
  [[noreturn]] void fail(const char* what, const std::byte* at) const;
  std::span<const std::byte> rest_;
  const std::byte* origin_;
};

void append_varint(std::string& out, std::uint64_t value);
void append_varint_field(std::string& out, std::uint32_t number, std::uint64_t value);
void append_bytes_field(std::string& out, std::uint32_t number, std::string_view content);

inline std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace ulpscope::onnx_wire
