#include "args/onnxrt.h"

#include <fmt/format.h>

#include "ulpscope/error.h"

namespace ulpscope::cli {

void OnnxrtArgs::declare(OptionTable& table) {
  table.section("ONNX-Runtime Session Creation", "creating an ONNX Runtime session.");
  table.list({"--providers", "--execution-providers"}, providers, "NAME",
             "Execution providers in order of priority; parts of names in any case (cpu, cuda). Default: cpu");
  table.value({"--graph-optimization-level"}, optimization_level, "LEVEL",
              "ORT_DISABLE_ALL turns graph optimisations "
              "off; ORT_ENABLE_ALL is the default, and stands for the levels between");
}

OnnxRuntimeOptions OnnxrtArgs::options(const OnnxLoadArgs& load, int threads) const {
  OnnxRuntimeOptions options;
  if (!providers.empty()) options.providers = providers;
  options.threads = threads;
  if (optimization_level) {
    if (!optimization_level->starts_with("ORT_"))
      throw Error(ErrorCode::kInvalidArgument, fmt::format("[options] --graph-optimization-level: expected "
                                                           "ORT_DISABLE_ALL or ORT_ENABLE_ALL, got '{}'",
                                                           *optimization_level));
    options.optimize = *optimization_level != "ORT_DISABLE_ALL";
  }
  if (load.external_data_dir) options.external_data_dir = *load.external_data_dir;
  options.mark_all = marks_all(load.outputs);
  if (!options.mark_all) options.outputs = load.outputs;
  options.exclude_outputs = load.exclude_outputs;
  return options;
}

bool marks_all(const std::vector<std::string>& outputs) {
  return (outputs.size() == 1 && outputs[0] == "*") ||
         (outputs.size() == 2 && outputs[0] == "mark" && outputs[1] == "all");
}

}  // namespace ulpscope::cli
