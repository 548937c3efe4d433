// How ONNX files are read and which of their values are outputs.
#pragma once

#include "args/option_table.h"
#include "onnx/import.h"

namespace ulpscope::cli {

struct OnnxLoadArgs {
  std::vector<std::string> outputs, exclude_outputs;
  std::optional<std::string> external_data_dir;
  bool ignore_external_data = false;
  std::vector<std::string> outputs_by_type;
  bool fp_to_fp16 = false;
  std::optional<std::string> save_path;
  std::string save_help = "Write the model that ONNX Runtime is given";
  std::optional<std::string> save_external_data;  ///< A file name; empty: the default one.
  std::optional<int> size_threshold;
  bool many_files = false;

  /// `outputs_and_saving`: with the options that choose outputs, and those that write models.
  void declare(OptionTable& table, bool outputs_and_saving = true);
  ImportOptions import_options() const;
};

}  // namespace ulpscope::cli
