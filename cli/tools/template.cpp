#include <fmt/format.h>

#include "core/file.h"
#include "core/messages.h"
#include "interrupt.h"
#include "runners/template_script.h"
#include "tools/polygraphy_script.h"
#include "tools/tool.h"

namespace ulpscope::cli {

namespace {

/// Writes a script.
class TemplateTool : public Tool {
 public:
  void declare(OptionTable& table) override {
    declare_subject(table);
    table.section("Output", "the script.");
    table.value({"-o", "--output"}, output_, "FILE", "Where to write the script; - for the standard output");
  }

  void check_usage() const override {
    if (!output_) throw UsageError("the following arguments are required: -o/--output; try -o FILE.py");
  }

  bool owns_stdout() const override { return output_ == "-"; }

  int run() override {
    const std::string text = script();
    if (*output_ == "-") {
      fmt::print("{}", text);
      return 0;
    }
    const WritingFile writing;
    write_file(*output_, text);
    log_info("Writing {} to {}", name, *output_);
    return 0;
  }

 private:
  /// The options that say what the script is about.
  virtual void declare_subject(OptionTable& table) = 0;
  virtual std::string script() const = 0;

  std::optional<std::string> output_;
};

/// The script that `make` returns for a model.
class ModelTemplate : public TemplateTool {
 public:
  using Make = std::string (*)(const std::string& model);
  ModelTemplate(Make make, bool needs_model) : make_(make), needs_model_(needs_model) {}

 private:
  void declare_subject(OptionTable& table) override {
    table.section("Model", "the model");
    table.positional("MODEL", model_, "The ONNX model that the script is about; it need not exist yet", needs_model_);
  }
  std::string script() const override { return make_(model_.value_or("")); }

  Make make_;
  bool needs_model_;
  std::optional<std::string> model_;
};

/// The configuration that options of `run` would make.
class ConfigTemplate : public TemplateTool {
 public:
  std::string description() const override {
    return "\n\n    ulpscope template trt-config --fp16 --precision-constraints obey -o config.py\n\n"
           "Options for the configuration, as of `run`, are what the script begins with.";
  }

 private:
  static void declare_configuration(RunOptions& options, OptionTable& table) {
    options.model.declare(table);
    options.config.declare(table);
    options.data.declare(table);
  }
  void declare_subject(OptionTable& table) override { declare_configuration(options_, table); }
  std::string script() const override {
    return polygraphy_script("template trt-config", "--output", options_, declare_configuration);
  }

  RunOptions options_;
};

}  // namespace

std::unique_ptr<Tool> make_trt_network_template_tool() {
  return std::make_unique<ModelTemplate>(trt_network_template, false);
}

std::unique_ptr<Tool> make_trt_config_template_tool() { return std::make_unique<ConfigTemplate>(); }

std::unique_ptr<Tool> make_onnx_gs_template_tool() { return std::make_unique<ModelTemplate>(onnx_gs_template, true); }

}  // namespace ulpscope::cli
