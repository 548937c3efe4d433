// `run --profile` and `--profile-trace`.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/limits.h"
#include "runtime/engine.h"

namespace ulpscope::cli {

/// One line per step: its time, what it does per second, and the share that this is of what the machine can do.
std::string profile_table(const std::vector<Engine::StepProfile>& steps, const cpu::MachineLimits& limits);

/// The same as events, one behind the other, in Chrome's trace format (JSON), which Perfetto reads, too.
std::string profile_trace(const std::vector<Engine::StepProfile>& steps, const cpu::MachineLimits& limits);

}  // namespace ulpscope::cli
