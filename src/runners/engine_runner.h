// Our engine as a runner.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runners/runner.h"
#include "runtime/engine.h"

namespace ulpscope {

/// `make` builds or loads the engine; it is called by activate, once per activation.
std::unique_ptr<Runner> make_engine_runner(std::function<std::shared_ptr<Engine>()> make,
                                           std::string kind = "trt-runner");

}  // namespace ulpscope
