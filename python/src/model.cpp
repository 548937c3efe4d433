#include "ulpscope/model.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <span>

#include "api/loaded_model.h"
#include "arrays.h"
#include "compare/data_loader.h"
#include "engine/option_names.h"
#include "errors.h"
#include "functions.h"
#include "long_call.h"
#include "runners/worker.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/log.h"
#include "whole_number.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

/// One whose inputs and outputs Python can name.
Model named(Model model) {
  const Network& network = *ModelAccess::loaded(model).network;
  for (const std::vector<TensorId>& ids : {network.inputs, network.outputs})
    for (const TensorId id : ids) readable(network.tensor(id).name);
  return model;
}

Model from_file(const std::filesystem::path& path, const ModelOptions& options) {
  return named(Model::from_file(path, options));
}

Model from_bytes(const nb::bytes& model, const ModelOptions& options, const std::string& name) {
  const std::span bytes = to_span(model);
  const nb::gil_scoped_release no_gil;
  return named(Model::from_bytes(bytes, options, name));
}

std::vector<Spec> inputs_of(const Model& model) {
  std::vector<Spec> result;
  for (const InputBinding& each : input_bindings(*ModelAccess::loaded(model).network))
    result.emplace_back(each.name, dtype_of(each.type), each.shape);
  return result;
}

std::vector<Spec> outputs_of(const Model& model) {
  std::vector<Spec> result;
  const Network& network = *ModelAccess::loaded(model).network;
  for (const TensorId id : network.outputs) {
    const TensorInfo& info = network.tensor(id);
    if (info.shape) result.emplace_back(info.name, dtype_of(info.type), *info.shape);
  }
  return result;
}

/// Scripts, plots and checks run in this Python; messages go to its logging.
void use_python(const std::filesystem::path& interpreter, const std::filesystem::path& packages) {
  WorkerOptions worker = default_worker_options();
  worker.interpreter = interpreter;
  worker.python_path = packages;
  worker.interrupted = &LongCall::should_end;
  set_default_worker_options(worker);
  // The library calls it without the GIL, so that nobody waits for one while holding the other.
  set_log_sink([](LogLevel level, std::string_view message) {
    if (!nb::is_alive()) return;
    const nb::gil_scoped_acquire gil;
    try {
      nb::module_::import_("logging")
          .attr("getLogger")("ulpscope")
          .attr("log")(static_cast<int>(level), "%s", python_text(message));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("ulpscope's log");
    }
  });
}

std::vector<std::string> names_of_precisions(const ModelOptions& self) {
  std::vector<std::string> names;
  for (const Precision each : self.precisions) names.emplace_back(name_of(each));
  return names;
}

void set_precisions(ModelOptions& self, const std::vector<std::string>& names) {
  self.precisions.clear();
  for (const std::string& name : names)
    self.precisions.push_back(precision_from_name(name, "[model] precisions", is_lower));
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def("use_python", &use_python, nb::arg("interpreter"), nb::arg("packages"));
  nb::class_<ModelOptions> options(module, "ModelOptions");
  options.def(nb::init<>())
      .def_prop_rw("precisions", &names_of_precisions, &set_precisions)
      .def_rw("layer_precisions", &ModelOptions::layer_precisions)
      .def_rw("fusion", &ModelOptions::fusion)
      .def_rw("accumulation", &ModelOptions::accumulation)
      .def_rw("attention", &ModelOptions::attention)
      .def_rw("weight_scales", &ModelOptions::weight_scales)
      .def_rw("mx_scale_rule", &ModelOptions::mx_scale_rule)
      .def_rw("target", &ModelOptions::target)
      .def_rw("backend", &ModelOptions::backend)
      .def_rw("cost_model", &ModelOptions::cost_model);
  def_number(options, "threads", &ModelOptions::threads, to_threads, "[model] threads");
  def_number(options, "memory_limit", &ModelOptions::memory_limit, to_bytes, "[model] memory_limit");
  nb::class_<Model>(module, "Model")
      .def_static("from_file", &from_file, nb::arg("path"), nb::arg("options"),
                  nb::call_guard<nb::gil_scoped_release>())
      .def_static("from_bytes", &from_bytes, nb::arg("model"), nb::arg("options"), nb::arg("name"))
      .def("inputs", &inputs_of)
      .def("outputs", &outputs_of)
      .def("brings_scales", &brings_scales)
      .def_prop_rw("scales", &Model::scales, &Model::set_scales);
}

}  // namespace ulpscope::python
