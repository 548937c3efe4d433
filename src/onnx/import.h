// ONNX files into networks.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

struct ImportOptions {
  /// Where external data lies; empty: beside the model.
  std::filesystem::path external_data_dir;
  bool ignore_external_data = false;
  /// Names of the tensors that are wanted. Where the model has operators that are not known, nodes that none of these
  /// needs are left out, with a warning, and these become the outputs. Names that no node computes change nothing.
  std::vector<std::string> outputs;
};

/// Reads a model of IR version 3 or later, opsets 7 and later. Weights stay in the mapped file until they are used.
/// Model-local functions are inlined, nodes sorted, types inferred (graph/inference.h).
/// Throws Error: kNotFound, kIo, kInvalidFile (what is malformed and where), kUnsupported (operator or type, by name).
std::shared_ptr<Network> import_onnx(const std::filesystem::path& path, const OpRegistry& ops,
                                     const ImportOptions& options = {});

/// The same from memory; `source` is used in messages. The bytes are copied where weights need them.
std::shared_ptr<Network> import_onnx(std::span<const std::byte> bytes, const std::string& source, const OpRegistry& ops,
                                     const ImportOptions& options = {});

}  // namespace ulpscope
