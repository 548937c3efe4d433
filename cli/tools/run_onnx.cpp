#include "tools/run_onnx.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/file.h"
#include "core/messages.h"
#include "core/text.h"
#include "interrupt.h"
#include "onnx/description.h"
#include "onnx/edit.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> outputs_by_type(const RunOptions& options) {
  const OnnxDescription model = describe_onnx(options.model.path(), false, options.onnx.import_options());
  std::set<std::string> known;
  for (const OnnxNode& node : model.graph.nodes) known.insert(node.op);
  std::vector<std::string> result;
  for (const std::string& type : options.onnx.outputs_by_type) {
    bool found = false;
    for (const OnnxNode& node : model.graph.nodes) {
      if (lower_case(node.op) != lower_case(type)) continue;
      found = true;
      for (const std::string& output : node.outputs)
        if (!output.empty()) result.push_back(output);
    }
    if (!found)
      throw invalid_argument("[outputs] --onnx-outputs-by-type: the model has no node of type '{}'; it has {}", type,
                             fmt::join(known, ", "));
  }
  return result;
}

Tensor bytes_of(const EditedModel& model) {
  const std::string text = model.join();
  Tensor bytes(DataType::kUInt8, {static_cast<std::int64_t>(text.size())});
  std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

void save(const RunOptions& options, Worker& worker, const std::string& external_data_dir) {
  const OnnxLoadArgs& onnx = options.onnx;
  const std::string target = fs::absolute(*onnx.save_path).string();
  Value::Map args{{"path", fs::absolute(options.model.path()).string()},
                  {"target", target},
                  {"external_data_dir", external_data_dir},
                  {"size_threshold", static_cast<std::int64_t>(onnx.threshold().value_or(1024))},
                  {"one_file", !onnx.many_files},
                  {"shape_inference", onnx.shape_inference},
                  {"ignore_external_data", onnx.ignore_external_data}};
  if (onnx.save_external_data) args.emplace_back("external_data", *onnx.save_external_data);
  if (!onnx.outputs.empty() || !onnx.exclude_outputs.empty()) {
    const auto file = MappedFile::open(options.model.path());
    const bool all = marks_all(onnx.outputs);
    const std::vector<std::string> outputs = all ? std::vector<std::string>{"mark", "all"} : onnx.outputs;
    args.emplace_back("model", bytes_of(with_outputs(std::as_const(*file).bytes(), options.model.path().string(),
                                                     outputs, onnx.exclude_outputs)));
  }
  log_info("Saving ONNX model to: " + *onnx.save_path);
  const WritingFile writing;
  worker.call("save_onnx", std::move(args));
}

}  // namespace

void prepare_onnx(RunOptions& options, ScriptHost& host, std::optional<TemporaryFolder>& folder) {
  OnnxLoadArgs& onnx = options.onnx;
  if (!onnx.fp_to_fp16 && !onnx.save_path && onnx.outputs_by_type.empty()) {
    if (onnx.save_external_data || onnx.size_threshold || onnx.many_files)
      log_warning("[options] --save-external-data has no effect without --save-onnx");
    return;
  }
  if (!options.model.given() || options.model.type() != ModelType::kOnnx)
    throw invalid_argument(
        "[options] --fp-to-fp16, --save-onnx and --onnx-outputs-by-type: expected an ONNX model, got none");
  if (!onnx.outputs_by_type.empty()) {
    for (std::string& name : outputs_by_type(options))
      if (std::ranges::find(onnx.outputs, name) == onnx.outputs.end()) onnx.outputs.push_back(std::move(name));
  }
  std::string external = onnx.external_data_dir ? fs::absolute(*onnx.external_data_dir).string() : "";
  const fs::path original = options.model.path();
  if (onnx.fp_to_fp16) {
    const fs::path converted = folder.emplace(fs::temp_directory_path() / "ulpscope-").path() / original.filename();
    log_info("Converting float tensors to float16");
    host.data_worker()->call("convert_to_float16", Value::Map{{"path", fs::absolute(original).string()},
                                                              {"target", converted.string()},
                                                              {"external_data_dir", external}});
    options.model.model = converted.string();
    options.model.type_name = "onnx";
    onnx.external_data_dir.reset();  // the weights are part of the file now
    external.clear();
  }
  if (onnx.save_path) save(options, *host.data_worker(), external);
}

}  // namespace ulpscope::cli
