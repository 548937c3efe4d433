// The part of the ZIP format (PKWARE APPNOTE 6.3) that .npz archives use.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "compare/array_files.h"
#include "core/messages.h"

namespace ulpscope {
namespace {

constexpr std::size_t kEndSize = 22;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kLocalSize = 30;
constexpr std::uint64_t kIn64BitField = 0xffffffffu;

[[noreturn]] void malformed(std::string_view where, const std::string& what) {
  throw invalid_file(std::string(where) + ": malformed .npz archive: " + what);
}

std::uint64_t number(std::string_view bytes, std::size_t at, int width) {
  std::uint64_t value = 0;
  for (int i = 0; i < width; ++i)
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + static_cast<std::size_t>(i)])} << (8 * i);
  return value;
}

struct Entry {
  std::string name;
  std::uint64_t method, packed, unpacked, offset;
};

/// Where the central directory is, and how many entries it has; at least one.
std::pair<std::uint64_t, std::uint64_t> find_directory(std::string_view bytes, std::string_view where) {
  if (bytes.size() < kEndSize) malformed(where, "it is too short");
  // The end record is last, but for a comment of at most 65535 bytes.
  std::size_t end = bytes.size() - kEndSize;
  const std::size_t lowest = end > 65535 ? end - 65535 : 0;
  while (bytes.substr(end, 4) != std::string_view("PK\x05\x06", 4)) {
    if (end == lowest) malformed(where, "it has no directory; is it truncated?");
    --end;
  }
  std::uint64_t directory = number(bytes, end + 16, 4);
  std::uint64_t count = number(bytes, end + 10, 2);
  if (directory == kIn64BitField && end >= 20 && bytes.substr(end - 20, 4) == std::string_view("PK\x06\x07", 4)) {
    const std::uint64_t end64 = number(bytes, end - 20 + 8, 8);
    if (bytes.size() < 56 || end64 > bytes.size() - 56) malformed(where, "its directory lies outside of it");
    count = number(bytes, end64 + 32, 8);
    directory = number(bytes, end64 + 48, 8);
  }
  if (count == 0) malformed(where, "it holds no arrays");
  return {directory, count};
}

/// The entry of the directory that begins at `directory`, which is moved behind it.
Entry read_entry(std::string_view bytes, std::uint64_t& directory, std::string_view where) {
  if (bytes.size() < kEntrySize || directory > bytes.size() - kEntrySize ||
      bytes.substr(directory, 4) != std::string_view("PK\x01\x02", 4))
    malformed(where, "its directory lies outside of it");

  const std::uint64_t name_size = number(bytes, directory + 28, 2);
  std::size_t at = directory + kEntrySize + name_size;
  const std::size_t extra_end = at + number(bytes, directory + 30, 2);
  if (extra_end > bytes.size()) malformed(where, "its directory is truncated");
  Entry entry{std::string(bytes.substr(directory + kEntrySize, name_size)), number(bytes, directory + 10, 2),
              number(bytes, directory + 20, 4), number(bytes, directory + 24, 4), number(bytes, directory + 42, 4)};
  directory = extra_end + number(bytes, directory + 32, 2);
  while (at + 4 <= extra_end) {
    const std::uint64_t tag = number(bytes, at, 2);
    const std::size_t size = number(bytes, at + 2, 2);
    std::size_t field = at + 4;
    at = field + size;
    if (at > extra_end) break;
    if (tag != 1) continue;
    for (std::uint64_t* value : {&entry.unpacked, &entry.packed, &entry.offset}) {
      if (*value != kIn64BitField || field + 8 > at) continue;
      *value = number(bytes, field, 8);
      field += 8;
    }
  }
  return entry;
}

std::string inflate_raw(std::string_view packed, std::uint64_t size, std::string_view where) {
  // Deflate cannot do better than about 1032 to 1: a larger claim is a lie, and not worth the memory.
  if (size > packed.size() * std::uint64_t{1040} + 1024) malformed(where, "an array claims an impossible size");
  std::string result(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) malformed(where, "cannot start to unpack it");
  std::size_t in = 0, out = 0;
  int status = Z_OK;
  constexpr std::size_t kPiece = std::numeric_limits<uInt>::max() / 2;
  while (status == Z_OK) {
    const std::size_t given = std::min(packed.size() - in, kPiece), room = std::min(result.size() - out, kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + in));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + out);
    stream.avail_out = static_cast<uInt>(room);
    status = inflate(&stream, Z_NO_FLUSH);
    in += given - stream.avail_in;
    out += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END || out != result.size())
    malformed(where, "an array does not unpack to its size; the file is damaged");
  return result;
}

std::string content_of(const Entry& entry, std::string_view bytes, std::string_view where) {
  if (bytes.size() < kLocalSize || entry.offset > bytes.size() - kLocalSize ||
      bytes.substr(entry.offset, 4) != std::string_view("PK\x03\x04", 4))
    malformed(where, "an array lies outside of it");
  const std::uint64_t begin =
      entry.offset + kLocalSize + number(bytes, entry.offset + 26, 2) + number(bytes, entry.offset + 28, 2);
  if (begin > bytes.size() || entry.packed > bytes.size() - begin) malformed(where, "an array lies outside of it");
  const std::string_view packed = bytes.substr(begin, entry.packed);
  if (entry.method == 0) return std::string(packed);
  if (entry.method == 8) return inflate_raw(packed, entry.unpacked, where);
  malformed(where, "expected stored or deflated arrays, got compression method " + std::to_string(entry.method));
}

}  // namespace

std::string first_of_npz(std::string_view bytes, std::string_view where) {
  std::uint64_t directory = find_directory(bytes, where).first;
  return content_of(read_entry(bytes, directory, where), bytes, where);
}

std::vector<std::pair<std::string, std::string>> files_of_npz(std::string_view bytes, std::string_view where) {
  std::vector<std::pair<std::string, std::string>> files;
  auto [directory, count] = find_directory(bytes, where);
  for (; count > 0; --count) {
    Entry entry = read_entry(bytes, directory, where);
    std::string content = content_of(entry, bytes, where);
    files.emplace_back(std::move(entry.name), std::move(content));
  }
  return files;
}

}  // namespace ulpscope
