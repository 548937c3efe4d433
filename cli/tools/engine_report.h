// Which precision each layer got, and why, in the log.
#pragma once

#include "runtime/engine.h"

namespace ulpscope::cli {

/// At verbose level one line per layer. At info level, when `reduced` (narrower precisions were allowed) or precisions
/// are mixed: the same for networks of at most 20 layers, else one line per distinct decision.
void log_engine_report(const Engine& engine, bool reduced);

}  // namespace ulpscope::cli
