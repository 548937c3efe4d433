#include "cases.h"

#include <chrono>

#include "calibration/calibration.h"
#include "compare/json_files.h"
#include "onnx/import.h"
#include "ops/registry.h"

namespace ulpscope::bench {

Loaded load(const Case& which, const std::filesystem::path& models, int threads) {
  Loaded result;
  result.data.network = import_onnx(models / (which.model + ".onnx"), op_registry());
  result.data.samples = load_inputs(models / (which.model + ".search.json"));
  result.data.held_out = load_inputs(models / (which.model + ".held.json"));
  BuildOptions& build = result.options.build;
  build.threads = threads;
  build.assume_lowest = true;
  build.fusion = Fusion::kNone;
  build.constraints = ConstraintMode::kObey;
  if (which.low == Precision::kINT8) {
    build.enabled.set(Precision::kINT8);
    CalibrationOptions calibration;
    calibration.threads = threads;
    calibration.algorithm = CalibrationAlgorithm::kMinMax;
    auto samples = load_inputs(models / (which.model + ".calib.json"));
    std::size_t next = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto source = [&]() -> std::optional<TensorMap> {
      return next < samples.size() ? std::optional(samples[next++]) : std::nullopt;
    };
    build.scales = calibrate(result.data.network, calibration, source, nullptr, result.data.weights).scales;
    result.calibration_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } else {
    build.enabled.set(Precision::kFP16);
  }
  PerName<double> thresholds;
  thresholds.set(which.output, which.threshold);
  result.criterion = make_metric_criterion(which.metric, thresholds);
  return result;
}

}  // namespace ulpscope::bench
