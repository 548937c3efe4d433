// An ONNX file as protobuf objects that hold everything but the elements of tensors, which stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

/// Parses. Throws Error(kInvalidFile), saying what the file looks like when it is of a well-known other format.
void read_model(std::span<const std::byte> bytes, ModelFile& file);

}  // namespace ulpscope::onnx_model
