// Shared by the tests of the engine.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/assign.h"
#include "runtime/engine.h"
#include "onnx/model_builder.h"

namespace ulpscope::testing {

/// Options whose backend is the one that the tests run on: ULPSCOPE_TEST_BACKEND, else the default.
inline BuildOptions tested_options() {
  BuildOptions options;
  if (const char* backend = std::getenv("ULPSCOPE_TEST_BACKEND")) options.backend = backend;
  return options;
}

inline BuildOptions fp16_options(ConstraintMode mode = ConstraintMode::kNone, Fusion fusion = Fusion::kFull,
                                 bool lowest = false) {
  BuildOptions options = tested_options();
  options.enabled.set(Precision::kFP16);
  options.constraints = mode;
  options.fusion = fusion;
  options.assume_lowest = lowest;
  options.threads = 1;
  return options;
}

inline Layer& layer_named(Network& network, const std::string& name) {
  const LayerId id = network.find_layer(name);
  if (id == kNone) throw std::runtime_error("no layer " + name);
  return network.layer(id);
}

/// Layer name to report.
inline std::map<std::string, Engine::LayerReport> report_of(const Engine& engine) {
  std::map<std::string, Engine::LayerReport> result;
  for (auto& row : engine.report()) result[row.name] = row;
  return result;
}

inline std::vector<float> floats(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

inline std::vector<float> run_first(Engine& engine, const std::vector<Tensor>& inputs) {
  return floats(engine.run(inputs).at(0));
}

/// y = (x + 65504) - 65504, layers "Add" and "Sub".
inline std::shared_ptr<Network> add_sub() {
  Model model;
  model.input("x", {4});
  model.node("Add", {"x", "max"}, {"sum"}, "Add");
  model.node("Sub", {"sum", "max"}, {"y"}, "Sub");
  *model.graph().add_initializer() = float_tensor("max", {1}, {65504});
  model.output("y");
  return model.load();
}

}  // namespace ulpscope::testing
