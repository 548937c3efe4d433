#include "onnx/tensor_reader.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "core/element_types.h"
#include "core/memory.h"
#include "core/messages.h"
#include "formats/coded_elements.h"
#include "formats/codes.h"
#include "formats/stored_elements.h"
#include "onnx/element_type.h"
#include "onnx/wire.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {

static_assert(std::endian::native == std::endian::little, "raw data of ONNX is little-endian");

struct TensorReader::Plan {
  const std::string& what;
  DataType type;
  Shape shape;
  std::int64_t elements;
  std::size_t bytes;  ///< In the file.
};

namespace {

constexpr std::size_t kCopyPiece = std::size_t{8} << 20;

/// The format of elements that files hold packed; null for those of whole bytes.
const NumericFormat* packed_format(DataType type) {
  const NumericFormat* format = format_of(type);
  return format != nullptr && format->bits() < 8 ? format : nullptr;
}

/// Elements that are stored as varints: integers of every width, the bits of narrow floats, booleans.
template <typename Next>
void store_integers(Tensor& tensor, Next&& next) {
  const DataType type = tensor.type();
  const bool is_narrow = type == DataType::kFloat16 || type == DataType::kBFloat16;
  const DataType held = is_narrow ? DataType::kUInt16 : is_storage_only(type) ? DataType::kUInt8 : type;
  visit_type(AllTypes{}, held, [&]<typename T>(T) {
    T* out = static_cast<T*>(tensor.raw());
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      if constexpr (std::is_same_v<T, bool>)
        out[i] = next() != 0;
      else
        out[i] = static_cast<T>(next());
    }
  });
}

/// The field of TensorProto that has the elements of a type when they are not raw.
int typed_field(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kFloat64:
      return 10;
    case DataType::kInt64:
      return 7;
    case DataType::kUInt32:
    case DataType::kUInt64:
      return 11;
    default:
      return 5;
  }
}

int typed_count(const onnx::TensorProto& tensor, int field) {
  switch (field) {
    case 4:
      return tensor.float_data_size();
    case 10:
      return tensor.double_data_size();
    case 7:
      return tensor.int64_data_size();
    case 11:
      return tensor.uint64_data_size();
    default:
      return tensor.int32_data_size();
  }
}

/// A byte of a boolean other than 0 and 1 would be undefined behavior in C++.
Tensor with_valid_booleans(Tensor tensor) {
  if (tensor.type() != DataType::kBool) return tensor;
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.raw());
  if (std::none_of(bytes, bytes + tensor.size(), [](std::uint8_t byte) { return byte > 1; })) return tensor;
  Tensor result(DataType::kBool, tensor.shape());
  auto* out = static_cast<std::uint8_t*>(result.raw());
  std::transform(bytes, bytes + tensor.size(), out,
                 [](std::uint8_t byte) { return static_cast<std::uint8_t>(byte != 0); });
  return result;
}

}  // namespace

TensorReader::TensorReader(const ModelFile& file, std::filesystem::path folder, bool ignore_external_data)
    : file_(file), folder_(std::move(folder)), ignore_external_data_(ignore_external_data) {}

void TensorReader::fail(const std::string& what, const std::string& message) const {
  throw invalid_file("[import] {}: {}: {}", file_.source, what, message);
}

std::vector<std::shared_ptr<const MappedFile>> TensorReader::files() const {
  std::vector<std::shared_ptr<const MappedFile>> result;
  for (const auto& [location, file] : external_files_) result.push_back(file);
  return result;
}

Tensor TensorReader::read(const onnx::TensorProto& tensor, const std::string& what) {
  const auto type = from_onnx_type(tensor.data_type());
  if (!type)
    throw unsupported("[import] {}: {}: tensors of type {} are not supported", file_.source, what,
                      onnx_type_name(tensor.data_type()));
  if (tensor.has_segment())
    throw unsupported("[import] {}: {}: tensors in segments are not supported", file_.source, what);
  Plan plan{what, *type, Shape(tensor.dims().begin(), tensor.dims().end()), 1, 0};
  std::int64_t extent = 1;  // the product without zeros, since every part of a shape is multiplied somewhere
  for (std::int64_t dim : plan.shape) {
    if (dim < 0) fail(what, fmt::format("the shape {} has a negative dimension", to_string(plan.shape)));
    if (__builtin_mul_overflow(extent, std::max<std::int64_t>(dim, 1), &extent) || extent > (std::int64_t{1} << 46))
      fail(what, fmt::format("the shape {} is impossibly large", to_string(plan.shape)));
    plan.elements *= dim;
  }
  const NumericFormat* packed = packed_format(*type);
  plan.bytes = packed != nullptr ? packed_bytes(*packed, static_cast<std::size_t>(plan.elements))
                                 : static_cast<std::size_t>(plan.elements) * size_of(*type);

  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) return read_external(plan, tensor);
  TensorBytes bytes = file_.bytes_of(tensor);
  const bool in_message = tensor.has_raw_data();  // of what is not in the file so
  if (in_message) bytes = {.has_raw = true, .raw = std::as_bytes(std::span(tensor.raw_data()))};
  if (!bytes.has_raw && packed != nullptr && 8 % packed->bits() == 0) {
    // An entry of int32_data has a byte of the packed elements.
    const auto size = static_cast<std::int64_t>(plan.bytes);
    const Tensor whole = read_typed({what, DataType::kUInt8, {size}, size, plan.bytes}, tensor, bytes);
    return read_raw(plan, std::as_bytes(whole.values<std::uint8_t>()), nullptr, false);
  }
  if (!bytes.has_raw) return read_typed(plan, tensor, bytes);
  if (bytes.raw.size() != plan.bytes)
    fail(what, fmt::format("expected {} bytes for shape {} of type {}, got {}", plan.bytes, to_string(plan.shape),
                           name_of(plan.type), bytes.raw.size()));
  return with_valid_booleans(in_message ? read_raw(plan, bytes.raw, nullptr, false)
                                        : read_raw(plan, bytes.raw, file_.owner, file_.mapped));
}

Tensor TensorReader::read_raw(const Plan& plan, std::span<const std::byte> bytes,
                              const std::shared_ptr<const void>& owner, bool mapped) const {
  if (const NumericFormat* packed = packed_format(plan.type); packed != nullptr) {
    if (owner != nullptr && bytes.size() >= StoredElements::kLeastBytes)
      return Tensor::deferred(plan.type, plan.shape,
                              std::make_shared<CodedElements>(
                                  plan.type, plan.shape, CodedElements::Codes{plan.type, bytes.data(), true, owner}));
    Tensor result(plan.type, plan.shape);
    unpack(*packed, reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<std::size_t>(plan.elements),
           result.data<std::uint8_t>());
    if (mapped) release_pages(bytes.data(), bytes.size());
    return result;
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(plan.type) == 0;
  if (aligned && owner != nullptr && !bytes.empty())
    return Tensor::borrow(plan.type, plan.shape, const_cast<std::byte*>(bytes.data()), owner);
  if (mapped && owner != nullptr && plan.type != DataType::kBool && bytes.size() >= StoredElements::kLeastBytes)
    return Tensor::deferred(plan.type, plan.shape,
                            std::make_shared<StoredElements>(plan.type, plan.shape, plan.type, bytes.data(), owner));
  Tensor result(plan.type, plan.shape);
  // Piece by piece, so that the source and the copy are never both in memory as a whole.
  for (std::size_t at = 0; at < bytes.size(); at += kCopyPiece) {
    const std::size_t count = std::min(kCopyPiece, bytes.size() - at);
    std::memcpy(static_cast<std::byte*>(result.raw()) + at, bytes.data() + at, count);
    if (mapped) release_pages(bytes.data() + at, count);
  }
  return result;
}

Tensor TensorReader::read_typed(const Plan& plan, const onnx::TensorProto& tensor, const TensorBytes& bytes) const {
  const int field = typed_field(plan.type);
  const auto fail_count = [&](std::size_t count) {
    fail(plan.what, fmt::format("expected {} elements for shape {} of type {}, got {}", plan.elements,
                                to_string(plan.shape), name_of(plan.type), count));
  };
  const auto expected = static_cast<std::size_t>(plan.elements);
  const auto done_with = [&](const std::byte* begin, const std::byte* end) {
    if (file_.mapped) release_pages(begin, static_cast<std::size_t>(end - begin));
    return end;
  };
  const auto count_varints = [&](std::span<const std::byte> packed) {
    std::size_t count = 0;
    for (; !packed.empty(); packed = packed.subspan(std::min(kCopyPiece, packed.size()))) {
      const auto piece = packed.first(std::min(kCopyPiece, packed.size()));
      count += static_cast<std::size_t>(
          std::ranges::count_if(piece, [](std::byte byte) { return (byte & std::byte{0x80}) == std::byte{0}; }));
      done_with(piece.data(), piece.data() + piece.size());
    }
    return count;
  };
  if (bytes.packed_field == field && (field == 4 || field == 10)) {
    if (bytes.packed.size() != plan.bytes) fail_count(bytes.packed.size() / size_of(plan.type));
    return read_raw(plan, bytes.packed, file_.owner, file_.mapped);
  }
  if (bytes.packed_field == field) {
    if (count_varints(bytes.packed) != expected) fail_count(count_varints(bytes.packed));
    Tensor result(plan.type, plan.shape);
    onnx_wire::Reader reader(bytes.packed, bytes.packed.data());
    const std::byte* kept = bytes.packed.data();
    try {
      store_integers(result, [&] {
        const std::uint64_t value = reader.varint();
        if (static_cast<std::size_t>(reader.position() - kept) >= kCopyPiece) kept = done_with(kept, reader.position());
        return value;
      });
    } catch (const Error&) {
      fail(plan.what, "its elements are damaged");
    }
    done_with(kept, bytes.packed.data() + bytes.packed.size());
    return result;
  }
  const auto count = bytes.packed_field != 0 ? 0 : static_cast<std::size_t>(typed_count(tensor, field));
  if (count != expected) fail_count(count);
  Tensor result(plan.type, plan.shape);
  int i = 0;
  switch (field) {
    case 4:
      std::copy(tensor.float_data().begin(), tensor.float_data().end(), result.data<float>());
      break;
    case 10:
      std::copy(tensor.double_data().begin(), tensor.double_data().end(), result.data<double>());
      break;
    case 7:
      store_integers(result, [&] { return tensor.int64_data(i++); });
      break;
    case 11:
      store_integers(result, [&] { return tensor.uint64_data(i++); });
      break;
    default:
      store_integers(result, [&] { return tensor.int32_data(i++); });
      break;
  }
  return result;
}

namespace {

bool is_inside(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return !folder.empty() && std::ranges::mismatch(folder, file).in1 == folder.end();
}

}  // namespace

std::shared_ptr<MappedFile> TensorReader::open_external(const Plan& plan, const std::string& location) {
  if (const auto found = external_files_.find(location); found != external_files_.end()) return found->second;
  const std::filesystem::path relative(location);
  if (location.empty()) fail(plan.what, "its external data has no location");
  const bool climbs = std::ranges::any_of(relative, [](const auto& part) { return part == ".."; });
  if (relative.is_absolute() || climbs || location.find('\0') != std::string::npos)
    fail(plan.what,
         fmt::format("its external data is at '{}'; expected a path inside of the model's folder", location));
  const std::filesystem::path path = folder_ / relative;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed))
    throw error_of(ErrorCode::kNotFound,
                   "[import] {}: {}: its external data '{}' does not exist; try --external-data-dir", file_.source,
                   plan.what, path.string());
  // Caches link both the model and its data to files in one other folder.
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed || !(is_inside(real, std::filesystem::canonical(folder_, failed)) ||
                  is_inside(real, std::filesystem::canonical(file_.source, failed).parent_path())))
    fail(
        plan.what,
        fmt::format("its external data '{}' is a link that leaves the model's folder: to '{}'; try --external-data-dir "
                    "with the folder of that file, or a copy in the place of the link",
                    location, real.string()));
  if (!std::filesystem::is_regular_file(real, failed))
    fail(plan.what, fmt::format("its external data '{}' is not a file", path.string()));
  return external_files_[location] = MappedFile::open(real);
}

Tensor TensorReader::read_external(const Plan& plan, const onnx::TensorProto& tensor) {
  if (ignore_external_data_) {
    // Zeros that take no memory until somebody touches them.
    const std::size_t size = static_cast<std::size_t>(plan.elements) * size_of(plan.type);
    if (size == 0) return Tensor(plan.type, plan.shape);
    void* zeros = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) fail(plan.what, fmt::format("there is no room for {} bytes", size));
    return Tensor::borrow(plan.type, plan.shape, zeros, std::shared_ptr<const void>(zeros, [size](const void* p) {
                            ::munmap(const_cast<void*>(p), size);
                          }));
  }
  std::string location;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    std::uint64_t value = 0;
    const std::string& text = entry.value();
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || rest != text.data() + text.size())
      fail(plan.what, fmt::format("expected a number as {} of its external data, got '{}'", entry.key(), text));
    if (entry.key() == "offset")
      offset = value;
    else
      length = value;
  }
  const std::shared_ptr<MappedFile> file = open_external(plan, location);
  const std::span<const std::byte> all = std::as_const(*file).bytes();
  if (length && *length != plan.bytes)
    fail(plan.what, fmt::format("expected {} bytes for shape {} of type {}, got a length of {} in external data",
                                plan.bytes, to_string(plan.shape), name_of(plan.type), *length));
  if (offset > all.size() || plan.bytes > all.size() - offset)
    fail(plan.what, fmt::format("its external data is {} bytes at offset {}, but '{}' has only {} bytes", plan.bytes,
                                offset, location, all.size()));
  return with_valid_booleans(read_raw(plan, all.subspan(static_cast<std::size_t>(offset), plan.bytes), file, true));
}

}  // namespace ulpscope::onnx_model
