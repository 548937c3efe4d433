#include "engine.h"

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <span>
#include <tuple>

#include "arrays.h"
#include "ulpscope/convert.h"
#include "ulpscope/onnx_engine.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

EngineOptions options_from(std::string precision, std::map<std::string, std::string> layer_precisions,
                           std::string fusion, int threads, std::string backend) {
  return {std::move(precision), std::move(layer_precisions), std::move(fusion), threads, std::move(backend)};
}

std::vector<std::tuple<std::string, nb::object, Shape>> specs(const std::vector<TensorSpec>& specs) {
  std::vector<std::tuple<std::string, nb::object, Shape>> result;
  for (const TensorSpec& spec : specs) result.emplace_back(spec.name, dtype_of(spec.type), spec.shape);
  return result;
}

std::vector<nb::object> run(const OnnxEngine& engine, const std::vector<nb::object>& inputs) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool named = i < engine.inputs().size();
    tensors.push_back(
        to_tensor(inputs[i], named ? fmt::format("input '{}'", engine.inputs()[i].name) : fmt::format("input {}", i)));
  }
  std::vector<Tensor> results;
  {
    nb::gil_scoped_release no_gil;
    results = engine.run(tensors);
  }
  std::vector<nb::object> arrays;
  for (Tensor& result : results) arrays.push_back(to_array(std::move(result)));
  return arrays;
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<OnnxEngine>(module, "Engine")
      .def_static(
          "from_file",
          [](const std::filesystem::path& path, std::string precision,
             std::map<std::string, std::string> layer_precisions, std::string fusion, int threads, std::string backend) {
            nb::gil_scoped_release no_gil;
            return OnnxEngine::from_file(
                path, options_from(std::move(precision), std::move(layer_precisions), std::move(fusion), threads, std::move(backend)));
          },
          nb::arg("path"), nb::arg("precision"), nb::arg("layer_precisions"), nb::arg("fusion"), nb::arg("threads"), nb::arg("backend"))
      .def_static(
          "from_bytes",
          [](const nb::bytes& model, std::string precision, std::map<std::string, std::string> layer_precisions,
             std::string fusion, int threads, std::string backend) {
            const std::span bytes(static_cast<const std::byte*>(model.data()), model.size());
            nb::gil_scoped_release no_gil;
            return OnnxEngine::from_bytes(
                bytes, options_from(std::move(precision), std::move(layer_precisions), std::move(fusion), threads, std::move(backend)));
          },
          nb::arg("model"), nb::arg("precision"), nb::arg("layer_precisions"), nb::arg("fusion"), nb::arg("threads"), nb::arg("backend"))
      .def_static(
          "from_answer",
          [](const Model& model, const AnswerFile& answer) {
            const nb::gil_scoped_release no_gil;
            return build_engine(model, {.answer = answer});
          },
          nb::arg("model"), nb::arg("answer"))
      .def("inputs", [](const OnnxEngine& engine) { return specs(engine.inputs()); })
      .def("outputs", [](const OnnxEngine& engine) { return specs(engine.outputs()); })
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
      .def("run", &run, nb::arg("inputs"));
}

}  // namespace ulpscope::python
