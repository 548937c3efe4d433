// Our engine as a runner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/runner.h"
#include "runtime/engine.h"

namespace ulpscope {

/// Engine::profile of a runner of ours that is active; nothing for others. Inputs as for Runner::infer.
std::optional<std::vector<Engine::StepProfile>> profile_runner(Runner& runner, const TensorMap& inputs);

/// `make` builds or loads the engine; it is called by activate, once per activation.
std::unique_ptr<Runner> make_engine_runner(std::function<std::shared_ptr<Engine>()> make,
                                           std::string kind = "trt-runner");

}  // namespace ulpscope
