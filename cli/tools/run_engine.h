// The engine that `--trt` runs: from the model, scripts and options.
#pragma once

#include <memory>

#include "runners/script_host.h"
#include "runtime/engine.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

/// Loads MODEL, applies scripts, outputs, precisions and types in this order, and builds. Throws Error.
std::shared_ptr<Engine> build_engine(const RunOptions& options, ScriptHost& host);
/// Whether narrower precisions than float32 are allowed, after scripts had their say.
bool reduces_precision(const BuildOptions& build);

/// Writes what --save-engine and --save-tactics ask for.
void save_engine_files(const RunOptions& options, const Engine& engine);

/// Loads MODEL, applies scripts, outputs, precisions and types in this order, builds, and writes what --save-engine and
/// --save-tactics ask for. Logs the precisions. Throws Error.
std::shared_ptr<Engine> make_engine(const RunOptions& options, ScriptHost& host);

}  // namespace ulpscope::cli
