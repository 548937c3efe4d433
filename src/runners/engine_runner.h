// Our engine as a runner.
#pragma once

#include <functional>
#include <memory>

#include "runners/runner.h"
#include "runtime/engine.h"

namespace ulpscope {

/// "trt-runner". `make` builds or loads the engine; it is called by activate, once per activation.
std::unique_ptr<Runner> make_engine_runner(std::function<std::shared_ptr<Engine>()> make);

}  // namespace ulpscope
