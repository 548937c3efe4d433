#include "args/onnx_load.h"

namespace ulpscope::cli {

void OnnxLoadArgs::declare(OptionTable& table, bool outputs_and_saving) {
  table.section("ONNX Model Loading", "loading ONNX models.");
  table.value({"--external-data-dir", "--load-external-data", "--ext"}, external_data_dir, "DIR",
              "Where external weights lie, if not beside the model");
  table.flag({"--ignore-external-data"}, ignore_external_data, "Load the structure of a model without its weights");
  if (outputs_and_saving) {
    table.list({"--onnx-outputs"}, outputs, "NAME",
               "Tensors that ONNX Runtime hands out instead of the model's outputs: "
               "names, patterns (conv_*), or `mark all` (or '*') for the outputs of all nodes");
    table.list({"--onnx-exclude-outputs"}, exclude_outputs, "NAME", "Outputs to leave out; patterns too");
    table.list({"--onnx-outputs-by-type"}, outputs_by_type, "TYPE",
               "Also hand out the outputs of all nodes of these operators (Conv, MatMul, ...)");
    table.flag({"--fp-to-fp16"}, fp_to_fp16,
               "Convert the model to float16 first, but for its inputs and outputs (with ONNX Runtime's converter)");
  } else {
    table.words({"--fp-to-fp16"}, Arity::kNone, "", "Convert the model to float16 first")
        .refuse("write the model with ulpscope run --fp-to-fp16 --save-onnx");
  }

  table.section("ONNX Shape Inference", "ONNX shape inference.");
  table.words({"--shape-inference", "--do-shape-inference"}, Arity::kNone, "", "Infer shapes at load")
      .ignore("shapes are always inferred");
  table.words({"--no-onnxruntime-shape-inference"}, Arity::kNone, "", "Do not infer shapes with ONNX Runtime")
      .ignore("shapes are inferred by ulpscope");

  if (!outputs_and_saving) return;
  table.section("ONNX Model Saving", "saving ONNX models.");
  table.value({"--save-onnx"}, save_path, "FILE", save_help);
  table.optional_value({"--save-external-data", "--external-data-path"}, save_external_data, "FILE",
                       "Write its weights to a file beside it (default name: that of the model with .data)");
  table.value({"--external-data-size-threshold"}, size_threshold, "BYTES",
              "Smaller weights stay in the model (default: 1024)");
  table.flag({"--no-save-all-tensors-to-one-file"}, many_files, "Write each weight to a file of its own");
}

ImportOptions OnnxLoadArgs::import_options() const {
  ImportOptions options;
  if (external_data_dir) options.external_data_dir = *external_data_dir;
  options.ignore_external_data = ignore_external_data;
  return options;
}

}  // namespace ulpscope::cli
