// Building a plan for another assignment of a network whose weights are loaded and prepared: what a trial costs beside
// its inference. Models are read from $ULPSCOPE_BENCH_MODELS, else from build/models.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "core/parallel.h"
#include "engine/assign.h"
#include "runtime/executable.h"
#include "onnx/import.h"
#include "ops/registry.h"

namespace ulpscope {
namespace {

std::filesystem::path model_path(const std::string& name) {
  const char* folder = std::getenv("ULPSCOPE_BENCH_MODELS");
  const std::filesystem::path root = folder != nullptr
                                         ? std::filesystem::path(folder)
                                         : std::filesystem::path(ULPSCOPE_SOURCE_DIR) / "build" / "models";
  return root / (name + ".onnx");
}

/// A network with its two extreme assignments, both of which have been built, so that all weights are prepared.
class Trials {
 public:
  Trials(const std::string& name, std::vector<Shape> shapes, Fusion fusion)
      : network_(import_onnx(model_path(name), op_registry())), shapes_(std::move(shapes)), fusion_(fusion) {
    const auto spec = specialize(*network_, shapes_);
    BuildOptions options;
    options.assume_lowest = true;
    high_ = assign_precisions(*spec, options);
    options.enabled.set(Precision::kFP16);
    low_ = assign_precisions(*spec, options);
    inferred_ = spec->inferred;
    executable_ = std::make_unique<Executable>(*network_, low_, options);
    build(high_);
    build(low_);
  }

  /// Every layer low or high, by chance.
  Assignment random_assignment() {
    Assignment result = low_;
    for (LayerId l : result.precision.ids())
      if (random_() % 2 == 0) result.precision[l] = high_.precision[l];
    derive_storage(*network_, inferred_, false, false, result);
    return result;
  }

  std::shared_ptr<const Plan> build(const Assignment& assignment) {
    return executable_->plan_for(shapes_, assignment, fusion_);
  }

  std::vector<Tensor> inputs() const {
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      Tensor tensor(network_->tensor(network_->inputs[i]).type, shapes_[i]);
      std::fill_n(static_cast<char*>(tensor.raw()), tensor.bytes(), 0);
      result.push_back(std::move(tensor));
    }
    return result;
  }

 private:
  std::shared_ptr<Network> network_;
  std::vector<Shape> shapes_;
  Fusion fusion_;
  InferredNetwork inferred_;
  Assignment high_, low_;
  std::unique_ptr<Executable> executable_;
  std::mt19937 random_{1};
};

std::vector<Shape> shapes_of(const std::string& name) {
  static const std::map<std::string, std::vector<Shape>> shapes{
      {"minilm", {{1, 64}, {1, 64}, {1, 64}}}, {"ocr_det", {{1, 3, 320, 320}}}, {"resnet18", {{1, 3, 224, 224}}}};
  return shapes.at(name);
}

bool present(benchmark::State& state, const std::string& name) {
  if (std::filesystem::exists(model_path(name))) return true;
  state.SkipWithError((model_path(name).string() + " does not exist; see bench/README.md").c_str());
  return false;
}

/// Milliseconds from an assignment to a plan that can run. Every iteration has an assignment that was never built.
void build_plan(benchmark::State& state, const std::string& name, Fusion fusion) {
  if (!present(state, name)) return;
  set_num_threads(1);
  Trials trials(name, shapes_of(name), fusion);
  std::size_t groups = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const Assignment assignment = trials.random_assignment();
    state.ResumeTiming();
    auto plan = trials.build(assignment);
    groups = plan->grouping().groups.size();
    state.PauseTiming();
    plan.reset();
    state.ResumeTiming();
  }
  state.counters["groups"] = static_cast<double>(groups);
}

/// The same with the plan's first run and its end: a whole trial, but for the comparison.
void build_and_run_plan(benchmark::State& state, const std::string& name, Fusion fusion) {
  if (!present(state, name)) return;
  set_num_threads(1);
  Trials trials(name, shapes_of(name), fusion);
  const std::vector<Tensor> inputs = trials.inputs();
  for (auto _ : state) benchmark::DoNotOptimize(trials.build(trials.random_assignment())->run(inputs));
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  for (const char* name : {"minilm", "ocr_det", "resnet18"})
    for (const auto& [level, fusion] : {std::pair{"full", Fusion::kFull}, std::pair{"none", Fusion::kNone}}) {
      const std::string suffix = std::string("/") + name + "/" + level;
      benchmark::RegisterBenchmark(("build_plan" + suffix).c_str(), build_plan, name, fusion)
          ->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("build_and_run_plan" + suffix).c_str(), build_and_run_plan, name, fusion)
          ->Unit(benchmark::kMillisecond);
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
