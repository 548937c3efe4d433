#include "runners/message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr char kMagic[4] = {'U', 'L', 'P', 'W'};
constexpr std::uint8_t kVersion = 1;
constexpr std::int8_t kTensorExtension = 1;
constexpr std::uint64_t kAlignment = 64;
constexpr std::size_t kMaxDepth = 128;

[[noreturn]] void malformed(std::string_view what) {
  throw error_of(ErrorCode::kScript, "[script] worker: expected a message of the worker's protocol, got {}", what);
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

/// Keeps the order of maps.
using Json = nlohmann::ordered_json;

struct PackVisitor {
  PackedMessage& out;

  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const { return value; }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const Value::Array& values) const {
    Json::array_t result;
    result.reserve(values.size());
    for (const Value& value : values) result.push_back(std::visit(*this, value.variant()));
    return result;
  }
  Json operator()(const Value::Map& entries) const {
    Json::object_t result;
    result.reserve(entries.size());
    for (const auto& [key, value] : entries) result.emplace_back(key, std::visit(*this, value.variant()));
    return result;
  }
  Json operator()(const Tensor& tensor) const {
    const std::uint64_t offset = (out.shared_bytes + kAlignment - 1) / kAlignment * kAlignment;
    const Json description = Json::array({name_of(tensor.type()), tensor.shape(), offset});
    if (tensor.bytes() > 0) {
      out.tensors.emplace_back(offset, tensor);
      out.shared_bytes = offset + tensor.bytes();
    }
    return Json::binary(Json::to_msgpack(description), kTensorExtension);
  }
};

/// Makes the value while the parser reads.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::span<std::byte> shared, const std::shared_ptr<const void>& owner) : shared_(shared), owner_(owner) {}

  Value read(std::string_view message) && {
    if (!Json::sax_parse(message.begin(), message.end(), this, Json::input_format_t::msgpack))
      malformed("bytes that are not MessagePack");
    return std::move(result_);
  }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return add(static_cast<double>(value));
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override {
    const std::string_view body(reinterpret_cast<const char*>(value.data()), value.size());
    if (!value.has_subtype()) return add(body);
    if (static_cast<std::int8_t>(value.subtype()) != kTensorExtension) malformed("an unknown extension");
    return add(tensor(Builder(shared_, owner_).read(body)));
  }
  bool key(string_t& name) override {
    open_.back().map().emplace_back(std::move(name), Value());
    return true;
  }
  bool start_object(std::size_t) override { return open(Value::Map()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Value::Array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool add(Value value) {
    if (open_.empty())
      result_ = std::move(value);
    else if (open_.back().is_array())
      open_.back().array().push_back(std::move(value));
    else
      open_.back().map().back().second = std::move(value);
    return true;
  }

  bool open(Value container) {
    open_.push_back(std::move(container));
    return open_.size() <= kMaxDepth;  // The parser calls itself for every level.
  }

  bool close() {
    Value container = std::move(open_.back());
    open_.pop_back();
    return add(std::move(container));
  }

  Tensor tensor(const Value& description) const {
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
  std::vector<Value> open_;  ///< Lists and dicts that have not ended.
  Value result_;
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
  Json::to_msgpack(std::visit(PackVisitor{result}, value.variant()), result.message);
  return result;
}

Value unpack(std::string_view message, std::span<std::byte> shared, const std::shared_ptr<const void>& owner) {
  return Builder(shared, owner).read(message);
}

int share_tensors(const PackedMessage& message) {
  const auto fail = [&](const char* what) {
    throw error_of(ErrorCode::kIo, "[script] worker: cannot share {} bytes with the Python process: {}: {}",
                   message.shared_bytes, what, std::strerror(errno));
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
    throw error_of(ErrorCode::kIo, "[script] worker: cannot map {} bytes: {}", bytes, std::strerror(errno));
  std::shared_ptr<const Mapping> owner(new Mapping{memory, bytes});
  return {{static_cast<std::byte*>(memory), bytes}, owner};
}

}  // namespace ulpscope
