// What options change about the ONNX model before it is run: --fp-to-fp16, --onnx-outputs-by-type, --save-onnx.
#pragma once

#include <optional>

#include "core/temporary_folder.h"
#include "runners/script_host.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// Makes the changes, writes the model where --save-onnx says, and makes `options` name the changed model, which may
/// lie in `folder`, which is made then. Throws Error: kInvalidArgument for options that fit no such model.
void prepare_onnx(RunOptions& options, ScriptHost& host, std::optional<TemporaryFolder>& folder);

}  // namespace ulpscope::cli
