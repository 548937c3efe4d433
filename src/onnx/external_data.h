// The files beside a model that hold its weights.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/file.h"

namespace ulpscope {

/// The files that tensors of an ONNX file name as their external data, sorted, each once, below `folder` (empty: the
/// folder of the model). They need not exist. Throws Error as import_onnx does for a file that is no model.
std::vector<std::filesystem::path> external_data_files(const std::shared_ptr<const MappedFile>& model,
                                                       const std::filesystem::path& folder = {});

}  // namespace ulpscope
