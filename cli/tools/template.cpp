#include "tools/template.h"

#include <fmt/format.h>

#include "core/file.h"
#include "interrupt.h"
#include "runners/template_script.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {

void TemplateTool::declare(OptionTable& table) {
  table.section("Model", "the model");
  table.positional("MODEL", model_, "The ONNX model that the script is about; it need not exist yet", needs_model_);
  table.section("Output", "the script.");
  table.value({"-o", "--output"}, output_, "FILE", "Where to write the script; - for the standard output");
}

int TemplateTool::run() {
  if (!output_)
    throw Error(ErrorCode::kInvalidArgument,
                "[options] expected where to write the script, got nothing; try -o FILE.py");
  const std::string script = make_(model_.value_or(""));
  if (*output_ == "-") {
    fmt::print("{}", script);
    return 0;
  }
  const WritingFile writing;
  write_file(*output_, script);
  log_info(fmt::format("Writing {} to {}", name_, *output_));
  return 0;
}

std::unique_ptr<Tool> make_trt_network_template_tool() {
  return std::make_unique<TemplateTool>("template trt-network", "Write a script that defines or edits a network.",
                                        trt_network_template, false);
}

std::unique_ptr<Tool> make_trt_config_template_tool() {
  return std::make_unique<TemplateTool>("template trt-config", "Write a script that makes a builder configuration.",
                                        trt_config_template, false);
}

std::unique_ptr<Tool> make_onnx_gs_template_tool() {
  return std::make_unique<TemplateTool>("template onnx-gs", "Write a script that edits an ONNX model.",
                                        onnx_gs_template, true);
}

}  // namespace ulpscope::cli
