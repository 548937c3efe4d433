#include "compare/npy.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/memory.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
// Room for the first dimension to grow in place, as NumPy leaves it.
constexpr std::size_t kGrowthDigits = 21;

[[noreturn]] void fail(std::string_view where, const std::string& what, ErrorCode code = ErrorCode::kInvalidFile) {
  throw Error(code, std::string(where) + ": " + what);
}

std::string_view descriptor(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "<f4";
    case DataType::kFloat64:
      return "<f8";
    case DataType::kFloat16:
      return "<f2";
    case DataType::kInt8:
      return "|i1";
    case DataType::kUInt8:
      return "|u1";
    case DataType::kInt16:
      return "<i2";
    case DataType::kUInt16:
      return "<u2";
    case DataType::kInt32:
      return "<i4";
    case DataType::kUInt32:
      return "<u4";
    case DataType::kInt64:
      return "<i8";
    case DataType::kUInt64:
      return "<u8";
    case DataType::kBool:
      return "|b1";
    default:
      throw Error(ErrorCode::kUnsupported, "[save] array: NumPy has no type " + std::string(name_of(type)) +
                                               "; try float32 as the type of this tensor");
  }
}

DataType type_from_code(std::string_view code) {
  constexpr std::pair<std::string_view, DataType> kTypes[] = {
      {"f4", DataType::kFloat32}, {"f8", DataType::kFloat64}, {"f2", DataType::kFloat16}, {"i1", DataType::kInt8},
      {"u1", DataType::kUInt8},   {"i2", DataType::kInt16},   {"u2", DataType::kUInt16},  {"i4", DataType::kInt32},
      {"u4", DataType::kUInt32},  {"i8", DataType::kInt64},   {"u8", DataType::kUInt64},  {"b1", DataType::kBool}};
  for (const auto& [name, type] : kTypes)
    if (name == code) return type;
  return DataType::kUndefined;
}

struct Header {
  DataType type = DataType::kUndefined;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::size_t size = 0;  ///< Bytes before the elements.
};

/// Reads the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }, keys in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Header parse() {
    Header header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        read_type(header);
        has_type = true;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape") {
        header.shape = tuple();
        has_shape = true;
      } else {
        fail(where_,
             "expected the keys descr, fortran_order and shape in the header of an .npy file, got '" + key + "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!has_type || !has_order || !has_shape)
      fail(where_, "the header of the .npy file lacks descr, fortran_order or shape");
    return header;
  }

 private:
  void skip() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n' || text_.front() == '\t'))
      text_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!take(c))
      fail(where_, std::string("malformed header of an .npy file: expected '") + c + "' at \"" +
                       std::string(text_.substr(0, 20)) + "\"");
  }
  std::string string() {
    skip();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) {
      fail(where_,
           "malformed header of an .npy file: expected a string at \"" + std::string(text_.substr(0, 20)) + "\"");
    }
    const std::size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) fail(where_, "malformed header of an .npy file: a string does not end");
    std::string result(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return result;
  }
  bool boolean() {
    skip();
    for (const auto& [name, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.starts_with(name)) {
        text_.remove_prefix(name.size());
        return value;
      }
    }
    fail(where_, "malformed header of an .npy file: expected True or False for fortran_order");
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!take(')')) {
      skip();
      std::int64_t value = -1;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0)
        fail(where_,
             "malformed header of an .npy file: expected a dimension at \"" + std::string(text_.substr(0, 20)) + "\"");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      take('L');  // Python 2 wrote long integers so.
      shape.push_back(value);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }
  void read_type(Header& header) {
    skip();
    if (take('['))
      fail(where_, "expected an array of numbers, got one of structures; try saving its fields as arrays of their own",
           ErrorCode::kUnsupported);
    const std::string text = string();
    const bool has_order = !text.empty() && std::string_view("<>|=").find(text.front()) != std::string_view::npos;
    header.type = type_from_code(std::string_view(text).substr(has_order ? 1 : 0));
    header.big_endian = text.starts_with('>');
    if (header.type == DataType::kUndefined) {
      fail(where_,
           text.find('O') != std::string::npos
               ? "expected an array of numbers, got one of Python objects; try saving it with a numeric dtype"
               : "expected a numeric NumPy type, got '" + text +
                     "'; try casting it to float32 or an integer type before it is saved",
           ErrorCode::kUnsupported);
    }
  }

  std::string_view text_;
  std::string_view where_;
};

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
  Header header = HeaderParser(bytes.substr(begin, length), where).parse();
  header.size = begin + length;
  return header;
}

void swap_bytes(std::uint8_t* data, std::int64_t count, std::size_t width) {
  for (std::int64_t i = 0; i < count; ++i)
    std::reverse(data + static_cast<std::size_t>(i) * width, data + static_cast<std::size_t>(i + 1) * width);
}

/// Elements in Fortran order (first axis fastest) to C order.
void reorder(const std::uint8_t* in, std::uint8_t* out, const Shape& shape, std::size_t width) {
  const std::size_t rank = shape.size();
  std::vector<std::size_t> stride(rank);
  std::size_t step = width;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    stride[axis] = step;
    step *= static_cast<std::size_t>(shape[axis]);
  }
  const std::size_t total = step;
  std::vector<std::int64_t> index(rank, 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < total; to += width) {
    std::memcpy(out + to, in + from, width);
    for (std::size_t axis = rank; axis-- > 0;) {
      from += stride[axis];
      if (++index[axis] < shape[axis]) break;
      from -= stride[axis] * static_cast<std::size_t>(shape[axis]);
      index[axis] = 0;
    }
  }
}

}  // namespace

std::string encode_npy(const Tensor& tensor) {
  const std::string shape = to_string(tensor.shape());
  std::string text =
      "{'descr': '" + std::string(descriptor(tensor.type())) + "', 'fortran_order': False, 'shape': " + shape + ", }";
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
  const auto* in = reinterpret_cast<const std::uint8_t*>(bytes.data() + header.size);
  auto* out = static_cast<std::uint8_t*>(result.raw());
  const std::size_t width = size_of(header.type);
  if (header.fortran_order && header.shape.size() > 1) {
    reorder(in, out, header.shape, width);
  } else {
    std::memcpy(out, in, needed);
  }
  if (header.big_endian && width > 1) swap_bytes(out, result.size(), width);
  if (header.type == DataType::kBool)
    for (std::size_t i = 0; i < needed; ++i) out[i] = out[i] != 0;
  return result;
}

}  // namespace ulpscope
