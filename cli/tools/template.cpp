#include <fmt/format.h>

#include "core/file.h"
#include "interrupt.h"
#include "runners/template_script.h"
#include "tools/tool.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {

namespace {

/// Writes the script that `make` returns for a model.
class TemplateTool : public Tool {
 public:
  using Make = std::string (*)(const std::string& model);
  TemplateTool(std::string name, std::string summary, Make make, bool needs_model)
      : name_(std::move(name)), summary_(std::move(summary)), make_(make), needs_model_(needs_model) {}

  std::string name() const override { return name_; }
  std::string summary() const override { return summary_; }

  void declare(OptionTable& table) override {
    table.section("Model", "the model");
    table.positional("MODEL", model_, "The ONNX model that the script is about; it need not exist yet", needs_model_);
    table.section("Output", "the script.");
    table.value({"-o", "--output"}, output_, "FILE", "Where to write the script; - for the standard output");
  }

  int run() override {
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

 private:
  std::string name_, summary_;
  Make make_;
  bool needs_model_;
  std::optional<std::string> model_, output_;
};

}  // namespace

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
