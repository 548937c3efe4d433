// The engine that `--trt` runs: from the model, scripts and options.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "runners/script_host.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// Loads MODEL, applies scripts, outputs, precisions and types in this order, builds, and writes what --save-engine and
/// --save-tactics ask for. Logs the precisions. Throws Error.
std::shared_ptr<Engine> make_engine(const RunOptions& options, ScriptHost& host);

}  // namespace ulpscope::cli
