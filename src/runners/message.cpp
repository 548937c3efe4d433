#include "runners/message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <msgpack.hpp>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr char kMagic[4] = {'U', 'L', 'P', 'W'};
constexpr std::uint8_t kVersion = 1;
constexpr std::int8_t kTensorExtension = 1;
constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kMaxDepth = 128;

[[noreturn]] void malformed(std::string_view what) {
  throw Error(ErrorCode::kScript,
              fmt::format("[script] worker: expected a message of the worker's protocol, got {}", what));
}

template <typename T>
void put(std::byte* out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

template <typename T>
T get(const std::byte* in) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(in[i]) << (8 * i);
  return value;
}

using Packer = msgpack::packer<msgpack::sbuffer>;

void pack_text(Packer& packer, std::string_view text) {
  packer.pack_str(static_cast<std::uint32_t>(text.size()));
  packer.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
}

struct PackVisitor {
  Packer& packer;
  PackedMessage& out;

  void operator()(std::monostate) { packer.pack_nil(); }
  void operator()(bool value) { value ? packer.pack_true() : packer.pack_false(); }
  void operator()(std::int64_t value) { packer.pack_int64(value); }
  void operator()(double value) { packer.pack_double(value); }
  void operator()(const std::string& value) { pack_text(packer, value); }
  void operator()(const Value::Array& values) {
    packer.pack_array(static_cast<std::uint32_t>(values.size()));
    for (const Value& value : values) std::visit(*this, value.variant());
  }
  void operator()(const Value::Map& entries) {
    packer.pack_map(static_cast<std::uint32_t>(entries.size()));
    for (const auto& [key, value] : entries) {
      pack_text(packer, key);
      std::visit(*this, value.variant());
    }
  }
  void operator()(const Tensor& tensor) {
    const std::uint64_t offset = (out.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
    msgpack::sbuffer buffer;
    Packer inner(buffer);
    inner.pack_array(3);
    pack_text(inner, name_of(tensor.type()));
    inner.pack_array(static_cast<std::uint32_t>(tensor.rank()));
    for (std::int64_t dim : tensor.shape()) inner.pack_int64(dim);
    inner.pack_uint64(offset);
    packer.pack_ext(static_cast<std::uint32_t>(buffer.size()), kTensorExtension);
    packer.pack_ext_body(buffer.data(), static_cast<std::uint32_t>(buffer.size()));
    if (tensor.bytes() == 0) return;
    out.tensors.emplace_back(offset, tensor);
    out.shared_bytes = offset + tensor.bytes();
  }
};

msgpack::unpack_limit limits() {
  constexpr std::size_t kAny = std::numeric_limits<std::uint32_t>::max();
  return {kAny, kAny, kAny, kAny, kAny, kMaxDepth};
}

class Unpacker {
 public:
  Unpacker(std::span<std::byte> shared, const std::shared_ptr<const void>& owner) : shared_(shared), owner_(owner) {}

  Value convert(const msgpack::object& object) const {
    switch (object.type) {
      case msgpack::type::NIL:
        return {};
      case msgpack::type::BOOLEAN:
        return object.via.boolean;
      case msgpack::type::POSITIVE_INTEGER:
        if (object.via.u64 > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          return static_cast<double>(object.via.u64);
        return static_cast<std::int64_t>(object.via.u64);
      case msgpack::type::NEGATIVE_INTEGER:
        return object.via.i64;
      case msgpack::type::FLOAT32:
      case msgpack::type::FLOAT64:
        return object.via.f64;
      case msgpack::type::STR:
        return std::string(object.via.str.ptr, object.via.str.size);
      case msgpack::type::BIN:
        return std::string(object.via.bin.ptr, object.via.bin.size);
      case msgpack::type::ARRAY: {
        Value::Array result;
        result.reserve(object.via.array.size);
        for (std::uint32_t i = 0; i < object.via.array.size; ++i) result.push_back(convert(object.via.array.ptr[i]));
        return result;
      }
      case msgpack::type::MAP: {
        Value::Map result;
        result.reserve(object.via.map.size);
        for (std::uint32_t i = 0; i < object.via.map.size; ++i) {
          const msgpack::object_kv& entry = object.via.map.ptr[i];
          if (entry.key.type != msgpack::type::STR) malformed("a dict whose keys are not strings");
          result.emplace_back(std::string(entry.key.via.str.ptr, entry.key.via.str.size), convert(entry.val));
        }
        return result;
      }
      case msgpack::type::EXT:
        if (object.via.ext.type() != kTensorExtension) malformed("an unknown extension");
        return tensor(object.via.ext.data(), object.via.ext.size);
    }
    malformed("an unknown type");
  }

 private:
  Tensor tensor(const char* data, std::size_t size) const {
    const msgpack::object_handle handle = msgpack::unpack(data, size, nullptr, nullptr, limits());
    const Value description = convert(handle.get());
    const Value::Array& fields = description.array();
    if (fields.size() != 3) malformed("a tensor without type, shape and offset");
    const auto type = data_type_from_name(fields[0].text());
    if (!type || size_of(*type) == 0) malformed(fmt::format("a tensor of type '{}'", fields[0].text()));
    const Shape shape = fields[1].shape();
    for (std::int64_t dim : shape)
      if (dim < 0) malformed("a tensor with a negative dimension");
    const std::uint64_t offset = static_cast<std::uint64_t>(fields[2].integer());
    const std::uint64_t count = static_cast<std::uint64_t>(num_elements(shape));
    if (count == 0) return Tensor(*type, shape);
    const bool aligned = offset % kAlignment == 0;
    if (!aligned || offset > shared_.size() || count > (shared_.size() - offset) / size_of(*type))
      malformed("a tensor outside of the shared memory");
    return Tensor::borrow(*type, shape, shared_.data() + offset, owner_);
  }

  std::span<std::byte> shared_;
  const std::shared_ptr<const void>& owner_;
};

struct Mapping {
  void* data;
  std::size_t size;
  ~Mapping() { ::munmap(data, size); }
};

}  // namespace

void FrameHeader::write(std::span<std::byte, kFrameHeaderBytes> out) const {
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), kMagic, sizeof(kMagic));
  out[4] = static_cast<std::byte>(kVersion);
  out[5] = static_cast<std::byte>(kind);
  put(out.data() + 8, id);
  put(out.data() + 16, message_bytes);
  put(out.data() + 24, shared_bytes);
}

FrameHeader FrameHeader::read(std::span<const std::byte, kFrameHeaderBytes> in) {
  if (std::memcmp(in.data(), kMagic, sizeof(kMagic)) != 0 || in[4] != static_cast<std::byte>(kVersion))
    malformed("other bytes");
  FrameHeader header;
  header.kind = static_cast<FrameKind>(in[5]);
  if (header.kind < FrameKind::kRequest || header.kind > FrameKind::kError) malformed("an unknown kind of frame");
  header.id = get<std::uint32_t>(in.data() + 8);
  header.message_bytes = get<std::uint64_t>(in.data() + 16);
  header.shared_bytes = get<std::uint64_t>(in.data() + 24);
  if (header.message_bytes > std::numeric_limits<std::uint32_t>::max()) malformed("a message of more than 4 GiB");
  return header;
}

PackedMessage pack(const Value& value) {
  PackedMessage result;
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  std::visit(PackVisitor{packer, result}, value.variant());
  result.message.assign(buffer.data(), buffer.size());
  return result;
}

Value unpack(std::string_view message, std::span<std::byte> shared, const std::shared_ptr<const void>& owner) {
  try {
    const msgpack::object_handle handle = msgpack::unpack(message.data(), message.size(), nullptr, nullptr, limits());
    return Unpacker(shared, owner).convert(handle.get());
  } catch (const msgpack::unpack_error&) {
    malformed("bytes that are not MessagePack");
  }
}

int share_tensors(const PackedMessage& message) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorCode::kIo, fmt::format("[script] worker: cannot share {} bytes with the Python process: {}: {}",
                                            message.shared_bytes, what, std::strerror(errno)));
  };
  const int descriptor = ::memfd_create("ulpscope-tensors", MFD_CLOEXEC);
  if (descriptor < 0) fail("memfd_create");
  // Reserving the pages turns a lack of memory into an error here instead of SIGBUS while they are written.
  const int reserved = ::posix_fallocate(descriptor, 0, static_cast<off_t>(message.shared_bytes));
  if (reserved != 0) {
    ::close(descriptor);
    errno = reserved;
    fail("posix_fallocate");
  }
  void* memory = ::mmap(nullptr, message.shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    ::close(descriptor);
    fail("mmap");
  }
  for (const auto& [offset, tensor] : message.tensors)
    std::memcpy(static_cast<char*>(memory) + offset, tensor.raw(), tensor.bytes());
  ::munmap(memory, message.shared_bytes);
  return descriptor;
}

std::pair<std::span<std::byte>, std::shared_ptr<const void>> map_shared(int descriptor, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes)
    malformed("shared memory that is too short");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::kIo, fmt::format("[script] worker: cannot map {} bytes: {}", bytes, std::strerror(errno)));
  std::shared_ptr<const Mapping> owner(new Mapping{memory, bytes});
  return {{static_cast<std::byte*>(memory), bytes}, owner};
}

}  // namespace ulpscope
