#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <ranges>
#include <tuple>

#include "arrays.h"
#include "functions.h"
#include "graph/evaluate.h"
#include "graph/layer_form.h"
#include "onnx/import.h"
#include "ops/registry.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

std::vector<nb::object> reference_run(const nb::bytes& model, const std::vector<nb::object>& inputs) {
  const auto network = [bytes = to_span(model)] {
    nb::gil_scoped_release no_gil;
    return import_onnx(bytes, "model", op_registry());
  }();
  std::vector<Tensor> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor tensor = to_tensor(inputs[i], {"", fmt::format("input {}", i)});
    const DataType physical = physical_type(tensor.type());
    arguments.push_back(tensor.type() == physical ? tensor : tensor.cast(physical));
  }
  std::vector<Tensor> results;
  {
    nb::gil_scoped_release no_gil;
    results = evaluate(*network, arguments);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const DataType declared = network->tensor(network->outputs[i]).type;
      const bool converted = declared != DataType::kUndefined && declared != results[i].type();
      // A copy otherwise: an output may share the bytes of an input or of a weight.
      results[i] = converted ? results[i].cast(declared) : results[i].clone();
    }
  }
  std::vector<nb::object> arrays;
  for (Tensor& result : results) arrays.push_back(to_array(std::move(result)));
  return arrays;
}

const char* name_of(PrecisionRule rule) {
  switch (rule) {
    case PrecisionRule::kCompute:
      return "compute";
    case PrecisionRule::kMovement:
      return "movement";
    case PrecisionRule::kFixed:
      return "fixed";
  }
  return "";
}

std::vector<std::tuple<std::string, std::string, int, std::string, bool>> operators() {
  std::vector<std::tuple<std::string, std::string, int, std::string, bool>> result;
  for (const OpDef& op : op_registry().all()) {
    result.emplace_back(op.domain, op.name, op.since_version, name_of(op.precision), op.adjoint != nullptr);
  }
  return result;
}

/// From low to high: what searching.py orders and names by.
std::vector<std::pair<std::string, std::string>> precisions() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const LayerForm& form : std::views::reverse(layer_forms())) result.emplace_back(form.name, form.request());
  return result;
}

/// Those whose activations have scales that are calibrated; the best way is by their largest values, but for int8.
std::vector<std::string> calibrated_precisions() {
  std::vector<std::string> result;
  for (const LayerForm& form : layer_forms())
    if (form.needs_calibration()) result.emplace_back(form.name);
  return result;
}

}  // namespace

void bind_reference(nb::module_& module) {
  module.def("operators", &operators, "All operators: (domain, name, first opset, precision rule, has a derivative).");
  module.def("precisions", &precisions, "All precisions from low to high: (name, name of what asks for it).");
  module.def("calibrated_precisions", &calibrated_precisions, "The names of precisions whose activations need scales.");
  module.def(
      "reference_run", &reference_run, nb::arg("model"), nb::arg("inputs"),
      "Runs a serialized model with the reference kernels, layer by layer; inputs and outputs in the model's order.");
}

}  // namespace ulpscope::python
