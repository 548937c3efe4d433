#include "api/write_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "core/counted.h"
#include "core/file.h"
#include "core/messages.h"
#include "onnx/quantization_check.h"

namespace ulpscope {
namespace {

TensorMap typed_inputs(TensorMap inputs, const std::map<std::string, DataType>& types) {
  for (NamedTensor& each : inputs)
    if (const auto found = types.find(each.name); found != types.end() && each.tensor.type() != found->second)
      each.tensor = each.tensor.cast(found->second);
  return inputs;
}

/// Where the model lies; one from memory is written into the folder.
std::function<std::filesystem::path()> source_file(const LoadedModel& model, const std::filesystem::path& folder) {
  if (model.path.extension() == ".py") return nullptr;
  if (!model.path.empty()) return [&model] { return model.path; };
  return [&model, folder] {
    const std::filesystem::path file = folder / "source.onnx";
    write_file(file, {reinterpret_cast<const char*>(model.bytes.data()), model.bytes.size()});
    return file;
  };
}

/// The quantizers of the file that was written against those of the model.
void check_quantizers(const LoadedModel& model, const std::filesystem::path& folder,
                      const std::filesystem::path& file) {
  const std::vector<QuantizationProblem> after = check_quantization(file);
  if (after.empty()) return;
  model.with_bytes([&](std::span<const std::byte> bytes) {
    check_written_quantization(check_quantization(bytes, model.path.string(), {.external_data_dir = folder}), after,
                               file.filename().string());
  });
}

void log_conversion(const TypedModel& made, const std::string& output, std::vector<std::string> checked) {
  if (made.checked > 0)
    checked.insert(checked.begin(), fmt::format("ulpscope ({} runs, equal in every bit)", made.checked));
  std::string integers;
  if (made.file.quantized + made.file.stored_weights > 0)
    integers = fmt::format("{} quantized, {} in narrow formats, ", counted(made.file.quantized, "activation"),
                           counted(made.file.stored_weights, "constant"));
  log_info(
      "Saving typed model to {}: {} lowered, {}{} added to the {} of the model, {} removed, "
      "{:.1f} MB{}",
      output, counted(made.lowered, "layer"), integers, counted(made.file.casts, "cast"), made.file.source_casts,
      counted(made.file.removed, "node"), static_cast<double>(made.file.bytes) / 1e6,
      made.file.external ? fmt::format(" (weights in {}.data)", output) : "");
  if (!checked.empty()) log_info("Checked by {}", fmt::join(checked, ", "));
}

}  // namespace

TypedModel write_checked_model(const LoadedModel& model, const Specialization& spec, const Assignment& assignment,
                               const std::vector<Repair>& repairs, TypedModelOptions typed, bool python_checks,
                               const std::filesystem::path& path) {
  typed.external_data_dir = !model.external_data.empty() ? model.external_data : model.path.parent_path();
  if (typed.external_data_dir.empty()) typed.external_data_dir = ".";
  typed.source = model.hash();
  typed.version = ULPSCOPE_VERSION;
  const auto bf16 = [](const auto& entry) { return entry.second == DataType::kBFloat16; };
  const bool bfloat16 = std::ranges::count(assignment.precision, Precision::kBF16) > 0 ||
                        std::ranges::count(assignment.storage, DataType::kBFloat16) > 0 ||
                        assignment.int8_output == DataType::kBFloat16 || std::ranges::any_of(typed.io_types, bf16);
  std::vector<std::string> checked;
  // Python starts now, so that it is there when the file is.
  std::shared_ptr<OnnxChecks> checks;
  if (python_checks && typed.verify) checks = model.checks ? model.checks : std::make_shared<OnnxChecks>();
  typed.check = [&](const std::filesystem::path& file, const ExportReport& report) {
    if (report.quantizers) check_quantizers(model, typed.external_data_dir, file);
    if (checks == nullptr) return;
    if (typed.interrupt) typed.interrupt();
    const OnnxChecks::Source source{source_file(model, file.parent_path()), typed.samples.front()};
    checked = checks->check(file, typed_inputs(typed.samples.front(), typed.io_types), bfloat16, source);
  };
  TypedModel made;
  model.with_bytes([&](std::span<const std::byte> bytes) {
    made = write_typed_model(spec, bytes, assignment, repairs, typed, path);
  });
  warn_of_replaced_files(*model.network, "the typed model");
  log_conversion(made, path.string(), std::move(checked));
  return made;
}

}  // namespace ulpscope
