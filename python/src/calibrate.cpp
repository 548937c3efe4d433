#include "ulpscope/calibrate.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "calibration/calibrators.h"
#include "functions.h"
#include "long_call.h"
#include "samples.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

using Scales = std::map<std::string, float>;

/// `next` gives a dictionary of arrays, or None at the end. Returns the name of the algorithm and the scales.
std::tuple<std::string, Scales, std::size_t> calibrate_model(Model& model, const nb::object& next,
                                                             const std::string& method, double quantile,
                                                             const nb::object& progress) {
  CalibrationOptions options;
  options.algorithm = calibration_algorithm_from_name(method);
  options.quantile = quantile;
  LongCall call(progress);
  const CalibrationSource source = [&]() -> std::optional<TensorsByName> {
    std::optional<TensorsByName> sample;
    call.check();
    call.with_python([&] {
      const nb::object value = next();
      if (!value.is_none()) sample = to_tensors(value, "sample");
    });
    return sample;
  };
  const CalibrationProgress show = [&](std::size_t sample) { call.report(true, "calibrating", sample, 0); };
  Calibration made = call.run([&] { return calibrate(model, source, options, show); });
  return {std::string(cache_name_of(options.algorithm)), std::move(made.scales), made.samples};
}

}  // namespace

void bind_calibrate(nb::module_& module) {
  module.def("calibrate", &calibrate_model, nb::arg("model"), nb::arg("next"), nb::arg("method"), nb::arg("quantile"),
             nb::arg("progress").none());
  module.def(
      "measure_activations",
      [](Model& model, const nb::list& samples) {
        const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
        LongCall call;
        call.run([&] {
          measure_activations(model, tensors);
          return 0;
        });
      },
      nb::arg("model"), nb::arg("samples"));
  module.def(
      "calibration_error",
      [](const Model& model, const nb::list& samples) {
        const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
        LongCall call;
        return call.run([&] { return calibration_error(model, tensors); });
      },
      nb::arg("model"), nb::arg("samples"));
  module.def(
      "read_calibration_cache",
      [](const std::filesystem::path& path) {
        CalibrationCache cache = read_calibration_cache(path);
        return std::tuple(cache.algorithm, cache.scales);
      },
      nb::arg("path"));
  module.def(
      "write_calibration_cache",
      [](const std::filesystem::path& path, const std::string& algorithm, const Scales& scales) {
        write_calibration_cache(path, {.algorithm = algorithm, .scales = scales});
      },
      nb::arg("path"), nb::arg("algorithm"), nb::arg("scales"));
  module.def(
      "use_calibration",
      [](Model& model, const std::string& algorithm, const Scales& scales, const std::string& source) {
        const nb::gil_scoped_release no_gil;
        use_calibration(model, {.algorithm = algorithm, .scales = scales}, source);
      },
      nb::arg("model"), nb::arg("algorithm"), nb::arg("scales"), nb::arg("source"));
}

}  // namespace ulpscope::python
