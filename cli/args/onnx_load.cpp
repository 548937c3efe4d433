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
    table.words({"--onnx-outputs-by-type"}, Arity::kSome, "TYPE", "Mark the outputs of these operators")
        .refuse("give the names with --onnx-outputs");
  }
  table.words({"--fp-to-fp16"}, Arity::kNone, "", "Convert the model's floats to float16 for ONNX Runtime")
      .refuse("convert the file with onnxconverter_common, or compare with --trt --fp16");

  table.section("ONNX Shape Inference", "ONNX shape inference.");
  table.words({"--shape-inference", "--do-shape-inference"}, Arity::kNone, "", "Infer shapes at load")
      .ignore("shapes are always inferred");
  table.words({"--no-onnxruntime-shape-inference"}, Arity::kNone, "", "Do not infer shapes with ONNX Runtime")
      .ignore("shapes are inferred by ulpscope");

  if (!outputs_and_saving) return;
  table.section("ONNX Model Saving", "saving ONNX models.");
  const std::string no_save = "ulpscope run does not write ONNX files yet; use polygraphy surgeon sanitize";
  table.words({"--save-onnx"}, Arity::kOne, "FILE", "Write the loaded model").refuse(no_save);
  table
      .words({"--save-external-data", "--external-data-path"}, Arity::kOptional, "FILE",
             "Weights in a file of their own")
      .refuse(no_save);
  table.words({"--external-data-size-threshold"}, Arity::kOne, "BYTES", "For --save-external-data").refuse(no_save);
  table.words({"--no-save-all-tensors-to-one-file"}, Arity::kNone, "", "For --save-external-data").refuse(no_save);
}

ImportOptions OnnxLoadArgs::import_options() const {
  ImportOptions options;
  if (external_data_dir) options.external_data_dir = *external_data_dir;
  options.ignore_external_data = ignore_external_data;
  return options;
}

}  // namespace ulpscope::cli
