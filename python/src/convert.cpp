#include "ulpscope/convert.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "core/messages.h"
#include "functions.h"
#include "long_call.h"
#include "samples.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

nb::dict dict_of(const ConvertedModel& made) {
  nb::list layers, kept_back;
  for (const auto& each : made.layers)
    layers.append(nb::make_tuple(each.name, each.op, name_of(each.precision).data()));
  for (const auto& each : made.kept_back) kept_back.append(nb::make_tuple(each.layer, each.op, each.reason));
  nb::dict result;
  result["layers"] = layers;
  result["kept_back"] = kept_back;
  result["lowered"] = made.lowered;
  result["casts"] = made.casts;
  result["bytes"] = made.bytes;
  result["checked"] = made.checked;
  result["error"] = made.error ? nb::object(to_dict(*made.error)) : nb::none();
  result["corrected_biases"] = made.corrected_biases;
  result["uncorrected_error"] = made.uncorrected_error ? nb::object(to_dict(*made.uncorrected_error)) : nb::none();
  result["layer_precisions"] = made.layer_precisions;
  result["postprocess_script"] = made.postprocess_script;
  result["exclusions"] = made.exclusions;
  result["answer"] = made.answer ? nb::cast(*made.answer) : nb::none();
  return result;
}

void set_io_types(ConvertOptions& options, const std::map<std::string, std::string>& types) {
  for (const auto& [name, text] : types) {
    const auto type = data_type_from_name(text);
    if (!type)
      throw invalid_argument("[convert] io_types '{}': expected float32, float16 or bfloat16, got '{}'", name, text);
    options.io_types[name] = *type;
  }
}

}  // namespace

void bind_convert(nb::module_& module) {
  nb::class_<ConvertOptions>(module, "ConvertOptions")
      .def(nb::init<>())
      .def_rw("answer", &ConvertOptions::answer, nb::arg().none())
      .def_rw("keep", &ConvertOptions::keep)
      .def_rw("lower", &ConvertOptions::lower)
      .def_rw("layer_precisions", &ConvertOptions::layer_precisions)
      .def_rw("relax", &ConvertOptions::relax)
      .def_rw("bias_correction", &ConvertOptions::bias_correction)
      .def_rw("criterion", &ConvertOptions::criterion)
      .def_rw("verify", &ConvertOptions::verify)
      .def_rw("python_checks", &ConvertOptions::python_checks)
      .def("set_io_types", &set_io_types)
      .def("set_golden",
           [](ConvertOptions& self, const nb::list& outputs) { self.golden = to_samples(outputs, "golden outputs"); });
  module.def(
      "convert",
      [](const Model& model, const std::filesystem::path& path, const nb::list& samples, ConvertOptions options,
         const nb::object& progress) {
        LongCall call(progress);
        std::size_t done = 0;
        options.interrupt = [&] {
          call.report(done == 0, "converting", done, 0);
          ++done;
        };
        const std::vector<TensorsByName> tensors = to_samples(samples, "sample");
        return dict_of(call.run([&] { return convert(model, path, tensors, options); }));
      },
      nb::arg("model"), nb::arg("path"), nb::arg("samples"), nb::arg("options"), nb::arg("progress").none());
}

}  // namespace ulpscope::python
