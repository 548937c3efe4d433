// Calibrates a model for int8, and writes a calibration cache.
#include "example.h"

int main() {
  return run_example([] {
    auto model = ulpscope::Model::from_file("needs_constraints.onnx",
                                            {.precisions = {ulpscope::Precision::kINT8, ulpscope::Precision::kFP16}});
    const ulpscope::CalibrationOptions options{.algorithm = ulpscope::CalibrationAlgorithm::kMinMax};
    const ulpscope::Calibration made = ulpscope::calibrate(model, make_samples(4, 1), options);
    ulpscope::write_calibration_cache("int8.cache", {.algorithm = "MinMaxCalibration", .scales = made.scales});
    std::printf("x: one step is %.4f\n", static_cast<double>(made.scales.at("x")));
  });
}
