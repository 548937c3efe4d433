// `ulpscope template`: scripts to start from.
#pragma once

#include "args/model.h"
#include "tools/tool.h"

namespace ulpscope::cli {

/// Writes the script that `make` returns for a model.
class TemplateTool : public Tool {
 public:
  using Make = std::string (*)(const std::string& model);
  TemplateTool(std::string name, std::string summary, Make make, bool needs_model)
      : name_(std::move(name)), summary_(std::move(summary)), make_(make), needs_model_(needs_model) {}

  std::string name() const override { return name_; }
  std::string summary() const override { return summary_; }
  void declare(OptionTable& table) override;
  int run() override;

 private:
  std::string name_, summary_;
  Make make_;
  bool needs_model_;
  std::optional<std::string> model_, output_;
};

std::unique_ptr<Tool> make_trt_network_template_tool();
std::unique_ptr<Tool> make_trt_config_template_tool();
std::unique_ptr<Tool> make_onnx_gs_template_tool();

}  // namespace ulpscope::cli
