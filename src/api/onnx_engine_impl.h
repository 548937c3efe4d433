// What a handle on an engine holds.
#pragma once

#include <memory>
#include <vector>

#include "runtime/engine.h"
#include "ulpscope/onnx_engine.h"

namespace ulpscope {

struct OnnxEngine::Impl {
  std::shared_ptr<Engine> engine;
  std::vector<TensorSpec> inputs, outputs, defaults;

  explicit Impl(std::shared_ptr<Engine> built) : engine(std::move(built)) {
    for (const Binding& each : engine->inputs()) inputs.push_back({each.name, each.type, each.shape});
    for (const Binding& each : engine->outputs()) outputs.push_back({each.name, each.type, each.shape});
    for (const Binding& each : engine->defaults()) defaults.push_back({each.name, each.type, each.shape});
  }
};

}  // namespace ulpscope
