#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "compare/array_files.h"
#include "compare/shape_match.h"
#include "core/memory.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLongestHeader = 4096;  // of an array of numbers; those of structures may be longer
// Room for the first dimension to grow in place, as NumPy leaves it.
constexpr std::size_t kGrowthDigits = 21;

[[noreturn]] void fail(std::string_view where, const std::string& what, ErrorCode code = ErrorCode::kInvalidFile) {
  throw Error(code, std::string(where) + ": " + what);
}

/// NumPy's codes for types, without the sign of the byte order.
constexpr std::pair<std::string_view, DataType> kTypes[] = {
    {"f4", DataType::kFloat32}, {"f8", DataType::kFloat64}, {"f2", DataType::kFloat16}, {"i1", DataType::kInt8},
    {"u1", DataType::kUInt8},   {"i2", DataType::kInt16},   {"u2", DataType::kUInt16},  {"i4", DataType::kInt32},
    {"u4", DataType::kUInt32},  {"i8", DataType::kInt64},   {"u8", DataType::kUInt64},  {"b1", DataType::kBool}};

std::string descriptor(DataType type) {
  for (const auto& [code, known] : kTypes)
    if (known == type) return fmt::format("{}{}", size_of(type) == 1 ? '|' : '<', code);
  throw unsupported("[save] array: NumPy has no type {}; try float32 as the type of this tensor", name_of(type));
}

struct Header {
  DataType type = DataType::kUndefined;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::size_t size = 0;  ///< Bytes before the elements.
};

/// The type that `descr` names, e.g. '<f4'.
void read_type(Header& header, const nlohmann::json& descr, std::string_view where) {
  if (descr.is_array())
    fail(where, "expected an array of numbers, got one of structures; try saving its fields as arrays of their own",
         ErrorCode::kUnsupported);
  if (!descr.is_string()) fail(where, "malformed header of an .npy file: expected a text as descr");
  const std::string text = descr;
  const auto code = std::string_view(text).substr(text.find_first_not_of("<>|=") == 1 ? 1 : 0);
  for (const auto& [name, type] : kTypes)
    if (name == code) header.type = type;
  header.big_endian = text.starts_with('>');
  if (header.type == DataType::kUndefined)
    fail(where,
         text.find('O') != std::string::npos
             ? "expected an array of numbers, got one of Python objects; try saving it with a numeric dtype"
             : "expected a numeric NumPy type, got '" + text +
                   "'; try casting it to float32 or an integer type before it is saved",
         ErrorCode::kUnsupported);
}

/// The Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), } as JSON.
std::string python_to_json(std::string_view text) {
  std::string json;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = text[std::min(text.find_first_not_of(" \n", i + 1), text.size() - 1)];
    if (c == ',' && (next == ')' || next == ']' || next == '}')) continue;
    if (c == 'L' && i > 0 && std::isdigit(static_cast<unsigned char>(text[i - 1]))) continue;  // Python 2 wrote 2L
    const bool word = text.substr(i).starts_with("True") || text.substr(i).starts_with("False");
    json += c == '\'' ? '"' : c == '(' ? '[' : c == ')' ? ']' : word ? static_cast<char>(std::tolower(c)) : c;
  }
  return json;
}

Header parse_header(std::string_view text, std::string_view where) {
  const auto json = nlohmann::json::parse(python_to_json(text.substr(0, kLongestHeader)), nullptr, false);
  if (!json.is_object())
    fail(where,
         "malformed header of an .npy file: expected {'descr': type, 'fortran_order': True or False, 'shape': "
         "dimensions}, got " +
             std::string(text.substr(0, 80)));
  for (const auto& [key, value] : json.items())
    if (key != "descr" && key != "fortran_order" && key != "shape")
      fail(where, "expected the keys descr, fortran_order and shape in the header of an .npy file, got '" + key + "'");
  if (json.size() != 3) fail(where, "the header of the .npy file lacks descr, fortran_order or shape");
  Header header;
  read_type(header, json["descr"], where);
  if (!json["fortran_order"].is_boolean())
    fail(where, "malformed header of an .npy file: expected True or False for fortran_order");
  header.fortran_order = json["fortran_order"];
  const auto is_dimension = [](const nlohmann::json& d) {
    return d.is_number_unsigned() && d.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  };
  if (!json["shape"].is_array() || !std::ranges::all_of(json["shape"], is_dimension))
    fail(where, "malformed header of an .npy file: expected a tuple of dimensions, got " + json["shape"].dump());
  header.shape = json["shape"].get<Shape>();
  return header;
}

Header read_header(std::string_view bytes, std::string_view where) {
  if (!bytes.starts_with(kMagic)) fail(where, "expected an .npy file (it starts with \\x93NUMPY)");
  if (bytes.size() < 10) fail(where, "the .npy file ends within its header");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<std::uint8_t>(bytes[i])); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3)
    fail(where, "expected an .npy file of version 1, 2 or 3, got version " + std::to_string(version));
  std::size_t begin = 10, length = byte(8) | byte(9) << 8;
  if (version > 1) {
    if (bytes.size() < 12) fail(where, "the .npy file ends within its header");
    begin = 12;
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (bytes.size() - begin < length) fail(where, "the .npy file ends within its header");
  Header header = parse_header(bytes.substr(begin, length), where);
  header.size = begin + length;
  return header;
}

void swap_bytes(std::uint8_t* data, std::int64_t count, std::size_t width) {
  for (std::int64_t i = 0; i < count; ++i)
    std::reverse(data + static_cast<std::size_t>(i) * width, data + static_cast<std::size_t>(i + 1) * width);
}

}  // namespace

std::string encode_npy(const Tensor& tensor) {
  const std::string shape = to_string(tensor.shape());
  std::string text = "{'descr': '" + descriptor(tensor.type()) + "', 'fortran_order': False, 'shape': " + shape + ", }";
  if (tensor.rank() > 0) {
    const std::size_t digits = std::to_string(tensor.shape()[0]).size();
    text.append(kGrowthDigits - std::min(kGrowthDigits, digits), ' ');
  }
  const std::size_t prefix = kMagic.size() + 4;
  text.append(kAlignment - (prefix + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string result;
  result.reserve(prefix + text.size() + tensor.bytes());
  result += kMagic;
  result += '\x01';
  result += '\0';
  result += static_cast<char>(text.size() & 0xff);
  result += static_cast<char>(text.size() >> 8);
  result += text;
  if (tensor.bytes() > 0) result.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  return result;
}

Tensor decode_npy(std::string_view bytes, std::string_view where) {
  std::string unpacked;
  if (bytes.starts_with("PK")) {
    unpacked = first_of_npz(bytes, where);
    bytes = unpacked;
  }
  const Header header = read_header(bytes, where);
  std::size_t needed = size_of(header.type);
  bool empty = false;
  for (std::int64_t dimension : header.shape) empty = empty || dimension == 0;
  const std::size_t available = bytes.size() - header.size;
  if (empty) needed = 0;
  if (empty && !bytes_of(header.type, header.shape))
    fail(where, "malformed header of an .npy file: the shape " + to_string(header.shape) + " is impossibly large");
  for (std::int64_t dimension : header.shape) {
    if (empty) break;
    if (static_cast<std::uint64_t>(dimension) > available / needed) {
      fail(where, "the .npy file is truncated: it holds " + std::to_string(available) +
                      " bytes of elements, too few for the shape " + to_string(header.shape));
    }
    needed *= static_cast<std::size_t>(dimension);
  }
  if (needed > available)
    fail(where, "the .npy file is truncated: expected " + std::to_string(needed) + " bytes of elements, got " +
                    std::to_string(available));
  Tensor result(header.type, header.shape);
  if (needed == 0) return result;
  const std::size_t width = size_of(header.type);
  std::memcpy(result.raw(), bytes.data() + header.size, needed);
  if (header.fortran_order && header.shape.size() > 1) {  // the first axis fastest
    std::vector<std::int64_t> axes(header.shape.size());
    std::iota(axes.rbegin(), axes.rend(), 0);
    result = permute(result.reshaped(Shape(header.shape.rbegin(), header.shape.rend())), axes);
  }
  auto* out = static_cast<std::uint8_t*>(result.raw());
  if (header.big_endian && width > 1) swap_bytes(out, result.size(), width);
  if (header.type == DataType::kBool)
    for (std::size_t i = 0; i < needed; ++i) out[i] = out[i] != 0;
  return result;
}

}  // namespace ulpscope
