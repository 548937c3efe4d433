// What options change about the ONNX model before it is run: --fp-to-fp16, --onnx-outputs-by-type, --save-onnx.
#pragma once

#include <filesystem>

#include "runners/script_host.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// A folder that is removed with its content. Made when it is first asked for.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Throws Error(kIo).
  const std::filesystem::path& path();

 private:
  std::filesystem::path path_;
};

/// Makes the changes, writes the model where --save-onnx says, and makes `options` name the changed model, which may
/// lie in `folder`. Throws Error: kInvalidArgument for options that fit no such model.
void prepare_onnx(RunOptions& options, ScriptHost& host, TemporaryFolder& folder);

}  // namespace ulpscope::cli
