// Writing a typed model: what `convert` and `precision search --save-onnx` share.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compare/tensor_map.h"
#include "convert/convert.h"
#include "runners/onnx_checks.h"

namespace ulpscope::cli {

struct TypedModelRequest {
  std::filesystem::path model, output;
  /// Empty: the model's folder.
  std::filesystem::path external_data_dir;
  std::map<std::string, DataType> io_types;
  std::vector<TensorMap> samples;   ///< Fitted to the network; at least one.
  std::vector<std::string> raised;  ///< Layers that were raised only to save casts.
  Fusion fusion = Fusion::kFull;
  bool verify = true;
};

/// The network for the shapes of a sample.
std::shared_ptr<const Specialization> specialize_for(const Network& network, const TensorMap& sample);

/// Converts, checks and writes, and logs what was written. `checks`: onnx.checker and ONNX Runtime, or null. Ctrl-C
/// ends it between its steps. Throws what convert() throws.
Conversion write_typed_model(const Specialization& spec, const Assignment& assignment,
                             const std::vector<Repair>& repairs, const TypedModelRequest& request, OnnxChecks* checks);

/// Throws Error when the output would replace the model.
void check_typed_output(const std::filesystem::path& model, const std::string& option, const std::string& output);

}  // namespace ulpscope::cli
