// Elements of tensors: borrowed from the file where that is possible.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "onnx/import.h"
#include "onnx/model_file.h"
#include "ulpscope/tensor.h"

namespace ulpscope::onnx_model {

/// Turns TensorProto into Tensor. Raw data and external data stay in the mapped file: as they are where they are
/// aligned to their element size, otherwise until somebody asks for a copy (Tensor::deferred). Small ones are copied at
/// once, and the pages that they were copied from are given back.
class TensorReader {
 public:
  /// `folder` is where external data lies; nothing outside of it is opened.
  TensorReader(const ModelFile& file, std::filesystem::path folder, bool ignore_external_data);

  /// `what` names the tensor in messages ("initializer 'W'"). Throws Error: kUnsupported for a type that is not
  /// imported, kInvalidFile for sizes that do not fit, kNotFound and kIo for external data.
  Tensor read(const onnx::TensorProto& tensor, const std::string& what);

  /// The files of external data that were read.
  std::vector<std::shared_ptr<const MappedFile>> files() const;

 private:
  struct Plan;
  [[noreturn]] void fail(const std::string& what, const std::string& message) const;
  Tensor read_raw(const Plan& plan, std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                  bool mapped) const;
  Tensor read_external(const Plan& plan, const onnx::TensorProto& tensor);
  Tensor read_typed(const Plan& plan, const onnx::TensorProto& tensor, const TensorBytes& bytes) const;
  std::shared_ptr<MappedFile> open_external(const Plan& plan, const std::string& location);

  const ModelFile& file_;
  std::filesystem::path folder_;
  bool ignore_external_data_;
  std::map<std::string, std::shared_ptr<MappedFile>> external_files_;
};

}  // namespace ulpscope::onnx_model
