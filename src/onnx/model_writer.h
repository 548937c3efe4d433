// Writes a model whose tensors lie elsewhere: in the file that it came from, or in memory in another type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "formats/rounding.h"
#include "onnx-ml.pb.h"
#include "ulpscope/tensor.h"

namespace ulpscope::onnx_model {

/// The elements of one tensor of a ModelProto, which has its place in field kIndexField.
struct Payload {
  std::uint32_t field = 9;           ///< raw_data, or the packed field that `bytes` are the content of.
  std::span<const std::byte> bytes;  ///< As they are written; not used when there is a source.
  Tensor source;                     ///< Converted while it is written: rounded by `first`, then to `type`.
  DataType type = DataType::kUndefined;
  Rounding first = Rounding::kNone;
  std::size_t size() const;
};

/// The elements as raw_data has them: those of less than 8 bits packed.
std::string packed_elements(const Tensor& tensor);

/// What remains in the model file itself, at most; above that tensors of 1 KiB and more go to external data.
inline constexpr std::uint64_t kLargestModelFile = std::uint64_t{2000} << 20;

/// Refers to `payloads` and to what they refer to.
class ModelWriter {
 public:
  /// Changes the initializers of `model` to external data in the file `<name>.data` when all of it is larger than
  /// `limit`. Throws Error(kUnsupported) when even the graph alone is.
  ModelWriter(onnx::ModelProto& model, std::vector<Payload> payloads, const std::string& name,
              std::uint64_t limit = kLargestModelFile);

  /// Bytes of the model file and of the external data (0: none).
  std::uint64_t model_bytes() const noexcept { return model_bytes_; }
  std::uint64_t data_bytes() const noexcept { return data_bytes_; }

  /// Writes `<folder>/<name>` and, if there is any, `<folder>/<name>.data`; in pieces, so that memory does not grow
  /// with the weights. Throws Error(kIo), naming the path and the system's reason.
  void write(const std::filesystem::path& folder) const;

 private:
  using Piece = std::variant<std::string, std::size_t>;  ///< Text, or the elements of a payload.
  void move_out(onnx::ModelProto& model);

  std::vector<Payload> payloads_;
  std::string name_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<std::size_t, std::uint64_t>> outside_;  ///< Payload and offset.
  std::uint64_t model_bytes_ = 0, data_bytes_ = 0;
};

/// Marks the place of a payload in a tensor.
void set_payload(onnx::TensorProto& tensor, std::size_t index);

}  // namespace ulpscope::onnx_model
