#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "dlpack.h"
#include "engine/option_names.h"
#include "errors.h"
#include "functions.h"
#include "runtime/device_run.h"
#include "ulpscope/convert.h"
#include "ulpscope/onnx_engine.h"
#include "whole_number.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

std::vector<Spec> specs(const std::vector<TensorSpec>& specs) {
  std::vector<Spec> result;
  for (const TensorSpec& spec : specs) result.emplace_back(readable(spec.name), dtype_of(spec.type), spec.shape);
  return result;
}

std::vector<Tensor> run_with(const OnnxEngine& engine, const std::vector<Tensor>& inputs,
                             std::map<std::string, Tensor> named) {
  for (std::size_t i = 0; i < inputs.size() && i < engine.inputs().size(); ++i)
    named.insert_or_assign(engine.inputs()[i].name, inputs[i]);
  std::map<std::string, Tensor> outputs = engine.run(named);
  std::vector<Tensor> results;
  for (const TensorSpec& spec : engine.outputs()) results.push_back(std::move(outputs.at(spec.name)));
  return results;
}

/// An array, or a tensor of DLPack on the CPU. REQUIRES: not on a device.
Tensor input_of(nb::handle value, const ValueName& what) {
  if (!is_dlpack(value)) return to_tensor(value, what);
  return to_cpu_tensor(from_dlpack(value, place_of(value), 0, what, true));
}

/// `given`: constants by name, as well as the inputs.
std::vector<nb::object> run(const OnnxEngine& engine, const std::vector<nb::object>& inputs,
                            const std::map<std::string, nb::object>& given) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool named = i < engine.inputs().size();
    tensors.push_back(named ? input_of(inputs[i], {"input", engine.inputs()[i].name})
                            : input_of(inputs[i], {"input", std::to_string(i)}));
  }
  std::map<std::string, Tensor> named;
  for (const auto& [name, value] : given) named.emplace(name, input_of(value, {"input", name}));
  std::vector<Tensor> results;
  {
    nb::gil_scoped_release no_gil;
    results = named.empty() ? engine.run(tensors) : run_with(engine, tensors, std::move(named));
  }
  std::vector<nb::object> arrays;
  for (Tensor& result : results) arrays.push_back(to_array(std::move(result)));
  return arrays;
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<EngineOptions> options(module, "EngineOptions");
  options.def(nb::init<>())
      .def_prop_rw(
          "precision", [](const EngineOptions& self) { return name_of(self.precision); },
          [](EngineOptions& self, const std::string& name) {
            self.precision = precision_from_name(name, "[engine] precision", is_rung);
          })
      .def_rw("layer_precisions", &EngineOptions::layer_precisions)
      .def_rw("scales", &EngineOptions::scales)
      .def_rw("fusion", &EngineOptions::fusion)
      .def_rw("accumulation", &EngineOptions::accumulation)
      .def_rw("attention", &EngineOptions::attention)
      .def_rw("backend", &EngineOptions::backend);
  def_number(options, "threads", &EngineOptions::threads, to_threads, "[engine] threads");
  def_number(options, "memory_limit", &EngineOptions::memory_limit, to_bytes, "[engine] memory_limit");
  nb::class_<OnnxEngine>(module, "Engine")
      .def_static("from_file", &OnnxEngine::from_file, nb::arg("path"), nb::arg("options"),
                  nb::call_guard<nb::gil_scoped_release>())
      .def_static(
          "from_bytes",
          [](const nb::bytes& model, const EngineOptions& options) {
            const std::span bytes = to_span(model);
            const nb::gil_scoped_release no_gil;
            return OnnxEngine::from_bytes(bytes, options);
          },
          nb::arg("model"), nb::arg("options"))
      .def_static(
          "from_answer",
          [](const Model& model, const AnswerFile& answer) {
            const nb::gil_scoped_release no_gil;
            return build_engine(model, {.answer = answer});
          },
          nb::arg("model"), nb::arg("answer"))
      .def("inputs", [](const OnnxEngine& engine) { return specs(engine.inputs()); })
      .def("outputs", [](const OnnxEngine& engine) { return specs(engine.outputs()); })
      .def("defaults", [](const OnnxEngine& engine) { return specs(engine.defaults()); })
      .def("layers",
           [](const OnnxEngine& engine) {
             std::vector<std::tuple<std::string, std::string, std::string, std::string, std::vector<std::string>>>
                 result;
             for (const LayerSummary& layer : engine.layers()) {
               result.emplace_back(layer.name, layer.op, layer.precision, layer.reason, layer.nodes);
             }
             return result;
           })
      .def(
          "device_microseconds",
          [](const OnnxEngine& engine, const std::vector<std::vector<std::int64_t>>& shapes) {
            nb::gil_scoped_release release;
            return engine.device_microseconds(std::vector<Shape>(shapes.begin(), shapes.end()));
          },
          nb::arg("shapes"))
      .def("run", &run, nb::arg("inputs"), nb::arg("given"));
}

}  // namespace ulpscope::python
