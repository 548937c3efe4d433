// The model: a file of some type.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "args/option_table.h"
#include "onnx/import.h"
#include "ulpscope/shape.h"

namespace ulpscope::cli {

enum class ModelType { kOnnx, kEngine, kNetworkScript };

/// What a tool takes as its model, for the help.
enum class ModelForms {
  kAll,
  kNetworks,  ///< No engines, whose precisions are fixed.
};

struct ModelArgs {
  std::optional<std::string> model, type_name;
  std::vector<std::string> input_shapes;

  /// `required`: the tool does nothing without a model.
  void declare(OptionTable& table, bool required = false, ModelForms forms = ModelForms::kAll);

  bool given() const noexcept { return model.has_value(); }
  /// By --model-type, else by extension. Throws Error(kUnsupported) with what to do for anything else.
  ModelType type() const;
  /// MODEL without ":function".
  std::filesystem::path path() const;
  /// Throws Error(kNotFound) when there is no such file.
  void check_exists() const;
  /// Throws Error when writing `output`, which `option` names, would replace the model, and when it is no file.
  void check_not_replaced(const std::string& option, const std::string& output) const;
  std::vector<std::pair<std::string, Shape>> shapes() const;
};

// How ONNX files are read and which of their values are outputs.

struct OnnxLoadArgs {
  std::vector<std::string> outputs, exclude_outputs;
  std::optional<std::string> external_data_dir;
  bool ignore_external_data = false;
  std::vector<std::string> outputs_by_type;
  bool fp_to_fp16 = false, shape_inference = false;
  bool no_onnxruntime_inference = false;  ///< Matters to the scripts of --gen-script alone.
  std::optional<std::string> save_path;
  std::string save_help = "Write the model that ONNX Runtime is given";
  std::optional<std::string> save_external_data;  ///< A file name; empty: the default one.
  std::optional<std::string> size_threshold;
  /// --external-data-size-threshold; nothing where it is not given. Throws Error for what is no number of bytes.
  std::optional<std::size_t> threshold() const;
  bool many_files = false;

  /// Which options there are: how a model is read; also how it is shown, or what is changed about it; also where that is
  /// written.
  enum class Scope { kRead, kShow, kChange, kSave };
  void declare(OptionTable& table, Scope scope = Scope::kSave);
  /// Whether the model that is written or run differs from the file.
  bool edits() const {
    return fp_to_fp16 || !outputs.empty() || !exclude_outputs.empty() || !outputs_by_type.empty() || save_external_data;
  }
  ImportOptions import_options() const;
};

}  // namespace ulpscope::cli
