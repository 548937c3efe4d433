#include "tools/other_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "core/messages.h"
#include "graph/layer_form.h"
#include "precision/repair.h"
#include "precision/shell_word.h"

namespace ulpscope::cli {
namespace {

void warn_of_repairs(const AnswerFile& answer, const std::string& model) {
  const auto& repairs = answer.answer.repairs;
  if (const auto changed = std::ranges::count_if(repairs, changes_network); changed > 0)
    log_warning(
        "The other forms of the answer set precisions only: {} repair(s) ('{}', ...) are not in them. With the model "
        "as it is the outputs may be NaN, or wrong; use them with the float32 model that has the repairs: ulpscope "
        "convert {} --answer {} --repair-only -o repaired.onnx",
        changed, repairs.front().name, shell_word(model), shell_word(answer.path.string()));
}

void warn_of_formats(const ConvertedModel& made) {
  const auto only_typed = [](const auto& layer) { return !form_of(layer.precision).is_weakly_typed(); };
  if (const auto first = std::ranges::find_if(made.layers, only_typed); first != made.layers.end())
    log_warning(
        "The script leaves out {} layer(s) ('{}' in {}, ...), whose formats weakly typed networks do not have; build "
        "the typed model",
        std::ranges::count_if(made.layers, only_typed), first->name, name_of(first->precision));
}

void write(const std::optional<std::string>& path, const std::string& text) {
  if (path) write_file(*path, text), log_info("Saving to " + *path);
}

}  // namespace

void OtherForms::declare(OptionTable& table) {
  table.section("Also written", "other forms of the same choice.");
  table.ours().value({"--save-layer-precisions"}, layer_precisions_, "FILE",
                     "Words for --layer-precisions, one per line");
  table.ours().value({"--save-postprocess-script"}, script_, "FILE.py",
                     "A network postprocess script that sets the precisions in TensorRT up to 10");
  table.ours().value(
      {"--save-exclusions"}, exclusions_, "FILE.json",
      "nodes_to_exclude of ModelOpt AutoCast, and node_block_list of onnxconverter-common's float16 converter");
  table.ours().flag({"--print-commands"}, print_commands_, "Commands that build the typed model with TensorRT 11");
}

void OtherForms::save(const ConvertedModel& made, const AnswerFile* answer, const std::string& model,
                      const std::string& output) const {
  if (print_commands_) {
    const std::string typed = shell_word(output);
    const auto engine = shell_word(std::filesystem::path(output).replace_extension(".engine").string());
    fmt::print("trtexec --onnx={} --stronglyTyped --saveEngine={}\n", typed, engine);
    fmt::print("polygraphy run {} --trt --strongly-typed --onnxrt\n", typed);
  }
  if (saves() && answer != nullptr) warn_of_repairs(*answer, model);
  if (script_) warn_of_formats(made);
  write(layer_precisions_, made.layer_precisions);
  write(script_, made.postprocess_script);
  write(exclusions_, made.exclusions);
}

}  // namespace ulpscope::cli
