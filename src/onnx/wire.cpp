#include "onnx/wire.h"

#include "core/messages.h"

namespace ulpscope::onnx_wire {

void Reader::fail(const char* what, const std::byte* at) const {
  throw invalid_file("not a valid ONNX file: {} at byte {}; the file is truncated, damaged or of another format", what,
                     at - origin_);
}

std::uint64_t Reader::varint() {
  std::uint64_t value = 0;
  const std::size_t most = rest_.size() < 10 ? rest_.size() : 10;
  for (std::size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<std::uint64_t>(rest_[i]);
    value |= (byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      rest_ = rest_.subspan(i + 1);
      return value;
    }
  }
  fail(most == 10 ? "a malformed number" : "an incomplete number", rest_.data());
}

bool Reader::next(Field& field) {
  if (rest_.empty()) return false;
  const std::byte* const begin = rest_.data();
  const std::uint64_t tag = varint();
  const std::uint64_t number = tag >> 3;
  if (number == 0 || number > 0x1fffffff) fail("a malformed field", begin);
  field.number = static_cast<std::uint32_t>(number);
  field.type = static_cast<WireType>(tag & 7);
  field.payload = {};
  std::size_t length = 0;
  switch (field.type) {
    case WireType::kVarint:
      field.varint = varint();
      break;
    case WireType::kFixed64:
      length = 8;
      break;
    case WireType::kFixed32:
      length = 4;
      break;
    case WireType::kBytes: {
      const std::uint64_t announced = varint();
      if (announced > rest_.size()) fail("a field longer than what is left", begin);
      length = static_cast<std::size_t>(announced);
      break;
    }
    default:
      fail("a field of unknown kind", begin);
  }
  if (length > rest_.size()) fail("an incomplete field", begin);
  field.payload = rest_.first(length);
  rest_ = rest_.subspan(length);
  field.whole = {begin, rest_.data()};
  return true;
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_varint_field(std::string& out, std::uint32_t number, std::uint64_t value) {
  append_varint(out, std::uint64_t{number} << 3);
  append_varint(out, value);
}

void append_bytes_field(std::string& out, std::uint32_t number, std::string_view content) {
  append_varint(out, std::uint64_t{number} << 3 | 2);
  append_varint(out, content.size());
  out.append(content);
}

}  // namespace ulpscope::onnx_wire
