#include "onnx/model_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/file.h"
#include "core/messages.h"
#include "formats/codes.h"
#include "formats/convert.h"
#include "onnx/model_file.h"
#include "onnx/wire.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {
namespace {

using onnx_wire::Field;
using onnx_wire::Reader;
using onnx_wire::WireType;

constexpr std::size_t kSmallestOutside = 1024;
constexpr std::uint64_t kAlignment = 64, kPage = 4096;

/// A message as pieces with the elements of its tensors put back.
struct Assembled {
  std::vector<std::variant<std::string, std::size_t>> pieces;
  std::uint64_t size = 0;

  void add(std::string_view text) {
    if (pieces.empty() || !std::holds_alternative<std::string>(pieces.back())) pieces.emplace_back(std::string());
    std::get<std::string>(pieces.back()).append(text);
    size += text.size();
  }
  void add_payload(std::size_t index, std::size_t bytes) {
    pieces.emplace_back(index);
    size += bytes;
  }
  void add_field(std::uint32_t number, Assembled content) {
    std::string head;
    onnx_wire::append_varint(head, number << 3 | 2);
    onnx_wire::append_varint(head, content.size);
    add(head);
    const std::uint64_t before = size;
    for (auto& piece : content.pieces)
      if (const auto* text = std::get_if<std::string>(&piece))
        add(*text);
      else
        add_payload(std::get<std::size_t>(piece), 0);
    size = before + content.size;
  }
};

class Assembler {
 public:
  explicit Assembler(const std::vector<Payload>& payloads) : payloads_(payloads) {}

  Assembled assemble(Message kind, std::string_view message) {
    Assembled out;
    Reader reader(std::as_bytes(std::span(message)), reinterpret_cast<const std::byte*>(message.data()));
    for (Field field; reader.next(field);) {
      if (kind == Message::kTensor && field.number == kIndexField && field.type == WireType::kVarint) {
        put_elements(out, static_cast<std::size_t>(field.varint));
        continue;
      }
      const Message inner = field_kind(kind, field.number);
      if (inner == Message::kOther || inner == Message::kDropped || field.type != WireType::kBytes)
        out.add(onnx_wire::as_text(field.whole));
      else
        out.add_field(field.number, assemble(inner, onnx_wire::as_text(field.payload)));
    }
    return out;
  }

 private:
  void put_elements(Assembled& out, std::size_t index) {
    const Payload& payload = payloads_[index];
    if (payload.field == 0) return;  // the elements are in the message itself, or outside of the file
    std::string head;
    onnx_wire::append_varint(head, payload.field << 3 | 2);
    onnx_wire::append_varint(head, payload.size());
    out.add(head);
    out.add_payload(index, payload.size());
  }

  const std::vector<Payload>& payloads_;
};

/// A new file that is written from its beginning to its end.
class Output {
 public:
  explicit Output(std::filesystem::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("create it");
    buffer_.reserve(kBuffer);
  }
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text) {
    if (text.size() >= kBuffer) {
      flush();
      write_all(text);
    } else {
      if (buffer_.size() + text.size() > kBuffer) flush();
      buffer_.append(text);
    }
    at_ += text.size();
  }

  void pad_to(std::uint64_t offset) {
    static constexpr char kZeros[kPage] = {};
    while (at_ < offset) write({kZeros, static_cast<std::size_t>(std::min<std::uint64_t>(kPage, offset - at_))});
  }

  void write(const Payload& payload) {
    if (payload.source) {
      // Of what is made for this, nothing stays.
      const Tensor source = payload.source.in_memory();
      write_source(payload, source);
      MappedFile::release(source.raw(), source.bytes());
    } else {
      write(onnx_wire::as_text(payload.bytes));
      MappedFile::release(payload.bytes.data(), payload.bytes.size());
    }
  }

  void write_source(const Payload& payload, const Tensor& source) {
    const auto* in = static_cast<const std::byte*>(source.raw());
    if (is_storage_only(payload.type)) return write(packed_elements(source.cast(payload.type)));
    if (source.type() == payload.type && payload.first == Rounding::kNone)
      return write(onnx_wire::as_text({in, source.bytes()}));
    constexpr std::size_t kPiece = 1 << 16;
    const auto count = static_cast<std::size_t>(source.size());
    const bool rounds = payload.first != Rounding::kNone && source.type() == DataType::kFloat32;
    std::vector<float> rounded(rounds ? std::min(kPiece, count) : 0);
    std::string out;
    for (std::size_t at = 0; at < count; at += kPiece) {
      const std::size_t piece = std::min(kPiece, count - at);
      const std::byte* from = in + at * size_of(source.type());
      if (rounds) {
        round_array(reinterpret_cast<const float*>(from), rounded.data(), piece, payload.first);
        from = reinterpret_cast<const std::byte*>(rounded.data());
      }
      out.resize(piece * size_of(payload.type));
      if (source.type() == payload.type)
        std::memcpy(out.data(), from, out.size());
      else
        convert_elements(source.type(), from, payload.type, out.data(), piece);
      write(out);
    }
  }

  /// What is written is on the disk.
  void finish() {
    flush();
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) fail("write it");
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail("write it");
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{4} << 20;

  [[noreturn]] void fail(std::string_view action) const {
    throw error_of(ErrorCode::kIo, "[convert] {}: cannot {}: {}", path_.string(), action, std::strerror(errno));
  }
  void flush() {
    write_all(buffer_);
    buffer_.clear();
  }
  void write_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), std::min<std::size_t>(text.size(), 1u << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write it");
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  std::filesystem::path path_;
  int fd_;
  std::string buffer_;
  std::uint64_t at_ = 0;
};

}  // namespace

std::string packed_elements(const Tensor& tensor) {
  if (!is_storage_only(tensor.type())) return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
  const NumericFormat& format = *format_of(tensor.type());
  const auto count = static_cast<std::size_t>(tensor.size());
  std::string result(packed_bytes(format, count), '\0');
  pack(format, tensor.data<std::uint8_t>(), count, reinterpret_cast<std::uint8_t*>(result.data()));
  return result;
}

std::size_t Payload::size() const {
  if (!source) return bytes.size();
  if (is_storage_only(type)) return packed_bytes(*format_of(type), static_cast<std::size_t>(source.size()));
  return static_cast<std::size_t>(source.size()) * size_of(type);
}

void set_payload(onnx::TensorProto& tensor, std::size_t index) {
  std::string field;
  onnx_wire::append_varint_field(field, kIndexField, index);
  *tensor.mutable_unknown_fields() = std::move(field);
}

ModelWriter::ModelWriter(onnx::ModelProto& model, std::vector<Payload> payloads, const std::string& name,
                         std::uint64_t limit)
    : payloads_(std::move(payloads)), name_(name) {
  const auto assemble = [&] { return Assembler(payloads_).assemble(Message::kModel, model.SerializeAsString()); };
  Assembled assembled = assemble();
  if (assembled.size > limit) {
    move_out(model);
    assembled = assemble();
  }
  pieces_ = std::move(assembled.pieces);
  model_bytes_ = assembled.size;
  if (model_bytes_ > (std::uint64_t{1} << 31) - 1)
    throw unsupported("[convert] {}: the graph without its weights is larger than 2 GiB", name_);
}

void ModelWriter::move_out(onnx::ModelProto& model) {
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    const std::string& unknown = tensor.unknown_fields();
    Reader reader(std::as_bytes(std::span(unknown)), reinterpret_cast<const std::byte*>(unknown.data()));
    for (Field field; reader.next(field);) {
      if (field.number != kIndexField || field.varint >= payloads_.size()) continue;
      const auto index = static_cast<std::size_t>(field.varint);
      Payload& payload = payloads_[index];
      // Varints of typed fields are no raw data.
      if (payload.field != 9 && !(payload.field == 4 || payload.field == 10)) continue;
      if (payload.size() < kSmallestOutside) continue;
      const std::uint64_t step = payload.size() >= (std::size_t{1} << 20) ? kPage : kAlignment;
      data_bytes_ = (data_bytes_ + step - 1) / step * step;
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      tensor.clear_external_data();
      const auto add = [&](const char* key, std::string value) {
        auto* entry = tensor.add_external_data();
        entry->set_key(key);
        entry->set_value(std::move(value));
      };
      add("location", name_ + ".data");
      add("offset", fmt::format("{}", data_bytes_));
      add("length", fmt::format("{}", payload.size()));
      outside_.emplace_back(index, data_bytes_);
      data_bytes_ += payload.size();
      payload.field = 0;
      break;
    }
  }
}

void ModelWriter::write(const std::filesystem::path& folder) const {
  Output model(folder / name_);
  for (const Piece& piece : pieces_)
    if (const auto* text = std::get_if<std::string>(&piece))
      model.write(*text);
    else
      model.write(payloads_[std::get<std::size_t>(piece)]);
  model.finish();
  if (outside_.empty()) return;
  Output data(folder / (name_ + ".data"));
  for (const auto& [index, offset] : outside_) {
    data.pad_to(offset);
    data.write(payloads_[index]);
  }
  data.finish();
}

}  // namespace ulpscope::onnx_model
