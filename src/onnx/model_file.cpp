#include "onnx/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/messages.h"
#include "onnx/opset_six.h"
#include "onnx/sparse_tensors.h"
#include "onnx/wire.h"
#include "ulpscope/error.h"

namespace ulpscope::onnx_model {
namespace {

using onnx_wire::Field;
using onnx_wire::Reader;
using onnx_wire::WireType;

constexpr std::uint32_t kLastKnownField = 99;
constexpr int kMaxDepth = 100;

}  // namespace

/// Texts for people and training graphs are dropped.
Message field_kind(Message message, std::uint32_t number) {
  switch (message) {
    case Message::kModel:
      return number == 7    ? Message::kGraph
             : number == 25 ? Message::kFunction
             : number == 20 ? Message::kDropped
                            : Message::kOther;
    case Message::kGraph:
      return number == 1    ? Message::kNode
             : number == 5  ? Message::kTensor
             : number == 15 ? Message::kSparseTensor
             : number == 10 ? Message::kDropped
                            : Message::kOther;
    case Message::kNode:
      return number == 5 ? Message::kAttribute : number == 6 || number == 9 ? Message::kDropped : Message::kOther;
    case Message::kAttribute:
      if (number == 5 || number == 10) return Message::kTensor;
      if (number == 6 || number == 11) return Message::kGraph;
      return number == 22 || number == 23 ? Message::kSparseTensor : Message::kOther;
    case Message::kSparseTensor:
      return number == 1 || number == 2 ? Message::kTensor : Message::kOther;
    case Message::kFunction:
      return number == 7 ? Message::kNode : number == 11 ? Message::kAttribute : Message::kOther;
    default:
      return Message::kOther;
  }
}

namespace {

/// Copies a message without the elements of its tensors.
class Stripper {
 public:
  Stripper(const std::byte* origin, std::vector<TensorBytes>& tensors, bool keep_texts)
      : origin_(origin), tensors_(tensors), keep_texts_(keep_texts) {}

  std::string strip(Message kind, std::span<const std::byte> message, int depth) {
    if (depth > kMaxDepth) throw invalid_file("graphs are nested too deeply");
    if (kind == Message::kTensor) return strip_tensor(message);
    std::string out;
    Reader reader(message, origin_);
    for (Field field; reader.next(field);) {
      const Message inner = field_kind(kind, field.number);
      if (inner == Message::kDropped && !keep_texts_) continue;
      if (inner == Message::kOther || inner == Message::kDropped || field.type != WireType::kBytes)
        out.append(onnx_wire::as_text(field.whole));
      else
        onnx_wire::append_bytes_field(out, field.number, strip(inner, field.payload, depth + 1));
    }
    return out;
  }

 private:
  static bool is_typed_data(std::uint32_t number) {
    return number == 4 || number == 5 || number == 7 || number == 10 || number == 11;
  }

  std::string strip_tensor(std::span<const std::byte> message) {
    TensorBytes bytes;
    int chunks = 0;
    for (auto [reader, field] = std::pair{Reader(message, origin_), Field{}}; reader.next(field);) {
      if (field.number == 9 && field.type == WireType::kBytes) {
        bytes.has_raw = true;
        bytes.raw = field.payload;
      } else if (is_typed_data(field.number)) {
        ++chunks;
        bytes.packed_field = field.type == WireType::kBytes ? static_cast<int>(field.number) : 0;
        bytes.packed = field.payload;
      }
    }
    if (chunks != 1) bytes.packed_field = 0;  // several pieces: protobuf joins them
    std::string out;
    Reader reader(message, origin_);
    for (Field field; reader.next(field);) {
      const bool left_out = field.number > kLastKnownField || field.number == 9 ||
                            (field.number == 12 && !keep_texts_) ||
                            (bytes.packed_field != 0 && is_typed_data(field.number));
      if (!left_out) out.append(onnx_wire::as_text(field.whole));
    }
    onnx_wire::append_varint_field(out, kIndexField, tensors_.size());
    tensors_.push_back(bytes);
    return out;
  }

  const std::byte* origin_;
  std::vector<TensorBytes>& tensors_;
  const bool keep_texts_;
};

/// What the bytes look like when they are clearly something else; empty otherwise.
std::string_view foreign_format(std::string_view text) {
  const auto starts = [&](std::string_view magic) { return text.starts_with(magic); };
  if (starts("version https://git-lfs"))
    return "a pointer of Git LFS (the model itself was not downloaded; try `git lfs pull`)";
  if (starts("PK\x03\x04")) return "a ZIP archive (a PyTorch checkpoint or a packed model; export or unpack it first)";
  if (starts("\x80\x02") || starts("\x80\x03") || starts("\x80\x04") || starts("\x80\x05")) return "a Python pickle";
  if (starts("\x89HDF")) return "an HDF5 file (Keras; convert it to ONNX first)";
  if (starts("\x1f\x8b")) return "gzip-compressed data (unpack it first)";
  if (starts("\x93NUMPY")) return "a NumPy array";
  if (starts("GGUF")) return "a GGUF file";
  if (text.size() > 8 && text.substr(4, 4) == "TFL3") return "a TensorFlow Lite model";
  if (text.size() > 8 && text.substr(4, 4) == "ORTM")
    return "a model in ONNX Runtime's own format (use the .onnx file it was made from)";
  const std::string_view head = text.substr(0, 512);
  const bool printable = std::ranges::all_of(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\r' || c == '\t' || c == '\f';
  });
  if (!printable) return {};
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "blank text";
  if (head[first] == '<') return "HTML or XML (a web page that was saved in place of the model?)";
  if (head[first] == '{' || head[first] == '[') return "JSON";
  return "text";
}

}  // namespace

const TensorBytes& ModelFile::bytes_of(const onnx::TensorProto& tensor) const {
  static const TensorBytes none;
  const std::string& unknown = tensor.unknown_fields();
  Reader reader(std::as_bytes(std::span(unknown)), reinterpret_cast<const std::byte*>(unknown.data()));
  for (Field field; reader.next(field);)
    if (field.number == kIndexField && field.type == WireType::kVarint && field.varint < tensors.size())
      return tensors[field.varint];
  return none;
}

std::shared_ptr<MappedFile> map_model(const std::filesystem::path& path, ModelFile& file) {
  file.source = path.string();
  std::shared_ptr<MappedFile> mapping = MappedFile::open(path);
  file.owner = mapping;
  file.mapped = true;
  return mapping;
}

std::filesystem::path external_data_folder(const std::filesystem::path& path, const std::filesystem::path& given) {
  if (!given.empty()) return given;
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void read_model(std::span<const std::byte> bytes, ModelFile& file, bool keep_texts) {
  const auto fail = [&](const std::string& what) { throw invalid_file("[import] {}: {}", file.source, what); };
  if (bytes.empty()) fail("expected an ONNX model, got an empty file");
  if (const auto foreign = foreign_format(onnx_wire::as_text(bytes)); !foreign.empty())
    fail(fmt::format("expected an ONNX model, got {}", foreign));
  std::string stripped;
  try {
    stripped = Stripper(bytes.data(), file.tensors, keep_texts).strip(Message::kModel, bytes, 0);
  } catch (const Error& error) {
    fail(error.what());
  }
  if (stripped.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    fail("the graph without its weights is larger than 2 GiB");
  if (!file.proto.ParseFromString(stripped)) fail("not a valid ONNX file: the graph is damaged or nested too deeply");
  if (!file.proto.has_graph()) fail("not a valid ONNX file: it has no graph");
  make_dense(file);
  raise_opset_six(file);
}

}  // namespace ulpscope::onnx_model
