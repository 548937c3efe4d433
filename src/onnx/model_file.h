// An ONNX file as protobuf objects that hold everything but the elements of tensors, which stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "onnx-ml.pb.h"

namespace ulpscope::onnx_model {

/// Where the elements of one TensorProto lie in the file.
struct TensorBytes {
  bool has_raw = false;
  std::span<const std::byte> raw;     ///< raw_data
  int packed_field = 0;               ///< Number of the one typed field (float_data, ...) that is packed; 0: none.
  std::span<const std::byte> packed;  ///< Its elements, as on the wire.
};

struct ModelFile {
  onnx::ModelProto proto;
  std::string source;                 ///< For messages.
  std::shared_ptr<const void> owner;  ///< Keeps the bytes alive; null: they are the caller's and have to be copied.
  bool mapped = false;                ///< The bytes are a mapped file: pages can be given back after they were copied.
  std::vector<TensorBytes> tensors;

  /// The elements of a tensor of `proto`.
  const TensorBytes& bytes_of(const onnx::TensorProto& tensor) const;
};

/// Maps a file, which `file` is named for and keeps alive. Throws Error.
std::shared_ptr<MappedFile> map_model(const std::filesystem::path& path, ModelFile& file);
/// Where its external data lies: the folder that was given, else that of the file.
std::filesystem::path external_data_folder(const std::filesystem::path& path, const std::filesystem::path& given);

/// Parses. Throws Error(kInvalidFile), saying what the file looks like when it is of a well-known other format.
/// `keep_texts`: also what is for people only, and training graphs; else these are left out. Sparse constants become
/// dense, and models of opsets 1 to 6 models of opset 7.
void read_model(std::span<const std::byte> bytes, ModelFile& file, bool keep_texts = false);

/// What the field of a message is, as far as tensors can be inside.
enum class Message { kModel, kGraph, kNode, kAttribute, kTensor, kSparseTensor, kFunction, kOther, kDropped };
Message field_kind(Message message, std::uint32_t number);

/// The field that takes the place of a tensor's elements: an index into ModelFile::tensors. ONNX does not use the
/// number; one that comes from a file is dropped with the other unknown fields.
inline constexpr std::uint32_t kIndexField = 1000;

}  // namespace ulpscope::onnx_model
