#include "ulpscope/target.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "functions.h"
#include "long_call.h"
#include "samples.h"
#include "whole_number.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

/// `model` and `sample` may be None: then rates alone are measured, of `backend`. Returns the name, and the kernels.
std::tuple<std::string, int> measure(const std::filesystem::path& path, const nb::object& model,
                                     const nb::object& sample, const std::string& backend, nb::handle threads,
                                     const nb::object& progress) {
  LongCall call(progress);
  std::size_t figure = 0;
  const MeasuringProgress show = [&](const std::string& what) { call.report(true, "measuring " + what, figure++, 0); };
  MeasuredTarget measured;
  if (model.is_none()) {
    const int count = to_threads(threads, "[target] threads");
    measured = call.run([&] { return measure_target(path, backend, count, show); });
  } else {
    const Model& loaded = nb::cast<const Model&>(model);
    const TensorsByName tensors = to_tensors(sample, "sample");
    measured = call.run([&] { return measure_target(path, loaded, tensors, show); });
  }
  return {measured.name, measured.kernels};
}

}  // namespace

void bind_target(nb::module_& module) {
  module.def("measure_target", &measure, nb::arg("path"), nb::arg("model").none(), nb::arg("sample").none(),
             nb::arg("backend"), nb::arg("threads").none(), nb::arg("progress").none());
}

}  // namespace ulpscope::python
