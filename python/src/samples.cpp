#include "samples.h"

#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include "api/loaded_model.h"
#include "arrays.h"
#include "compare/data_loader.h"
#include "compare/json_files.h"
#include "core/messages.h"
#include "functions.h"
#include "long_call.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

nb::list to_list(const std::vector<TensorMap>& samples) {
  nb::list result;
  for (const TensorMap& sample : samples) {
    nb::dict arrays;
    for (const NamedTensor& each : sample) arrays[each.name.c_str()] = to_array(each.tensor);
    result.append(arrays);
  }
  return result;
}

nb::list outputs_of_first_runner(const std::filesystem::path& path) {
  LongCall call;
  const RunResults results = call.run([&] { return load_results(path); });
  if (results.empty() || results.front().second.empty())
    throw invalid_file("[golden] '{}': expected results of at least one iteration, got none", path.string());
  std::vector<TensorMap> samples;
  for (const IterationResult& each : results.front().second) samples.push_back(each.outputs);
  return to_list(samples);
}

}  // namespace

TensorsByName to_tensors(nb::handle mapping, const std::string& what) {
  TensorsByName result;
  for (nb::handle item : mapping.attr("items")()) {
    std::string name = nb::cast<std::string>(item[0]);
    Tensor tensor = to_tensor(item[1], {what + ":", name});
    result.emplace(std::move(name), std::move(tensor));
  }
  return result;
}

std::vector<TensorsByName> to_samples(nb::handle list, const std::string& what) {
  std::vector<TensorsByName> result;
  for (nb::handle sample : list) result.push_back(to_tensors(sample, fmt::format("{} {}", what, result.size())));
  return result;
}

nb::dict to_arrays(const TensorsByName& tensors) {
  nb::dict result;
  for (const auto& [name, tensor] : tensors) result[name.c_str()] = to_array(tensor);
  return result;
}

nb::dict to_dict(const Judgement& judgement) {
  nb::list outputs;
  for (const Judgement::OutputError& each : judgement.outputs) {
    nb::dict output;
    output["output"] = each.output;
    output["used"] = each.used;
    output["value"] = each.value;
    output["sample"] = each.sample;
    outputs.append(output);
  }
  nb::dict result;
  result["used"] = judgement.used;
  result["value"] = judgement.value;
  result["worst_output"] = judgement.worst_output;
  result["worst_sample"] = judgement.worst_sample;
  result["problem"] = judgement.problem;
  result["outputs"] = outputs;
  return result;
}

void bind_samples(nb::module_& module) {
  module.def(
      "load_inputs",
      [](const std::filesystem::path& path) {
        LongCall call;
        return to_list(call.run([&] { return ulpscope::load_inputs(path); }));
      },
      nb::arg("path"));
  module.def("load_outputs", &outputs_of_first_runner, nb::arg("path"));
  module.def(
      "generate_inputs",
      [](const Model& model) {
        LongCall call;
        return to_list(call.run([&] {
          return ulpscope::generate_inputs(DataLoaderOptions{}, input_bindings(*ModelAccess::loaded(model).network));
        }));
      },
      nb::arg("model"));
}

}  // namespace ulpscope::python
