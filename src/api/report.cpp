#include "ulpscope/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <sstream>

#include "core/messages.h"
#include "graph/layer_form.h"
#include "onnx/description.h"
#include "onnx/import.h"
#include "precision/shell_word.h"
#include "runners/foreign_operators.h"
#include "runners/worker.h"

namespace ulpscope {
namespace {

std::string command_of(const std::vector<std::string>& words) {
  std::string line = "ulpscope";
  for (const std::string& word : words) line.append(" ").append(shell_word(word));
  return line;
}

/// What `convert` wrote into the file; nothing: another tool wrote it, or an earlier release.
std::optional<std::string> metadata_of(const OnnxDescription& description, std::string_view wanted) {
  for (const auto& [key, value] : description.metadata)
    if (key == wanted) return value;
  return std::nullopt;
}

std::optional<std::set<std::string>> added_casts(const OnnxDescription& description) {
  const auto text = metadata_of(description, "ulpscope.added_casts");
  if (!text) return std::nullopt;
  std::set<std::string> names;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) names.insert(line);
  return names;
}

/// The Cast layers of a typed model, in its order.
Value casts_of(const Network& network, const std::optional<std::set<std::string>>& added) {
  const auto consumers = network.consumers();
  Value casts{Value::Array{}};
  for (const Layer& layer : network.layers) {
    if (layer.op->function != Function::kCast || layer.input(0) == kNone || layer.output(0) == kNone) continue;
    const TensorId from = layer.inputs[0], to = layer.outputs[0];
    const LayerId producer = network.tensor(from).producer;
    Value readers{Value::Array{}};
    for (const LayerId id : consumers[to]) readers.push(network.layer(id).name);
    if (network.is_output(to)) readers.push(fmt::format("the output {}", network.tensor(to).name));
    const std::string_view origin = !added ? "" : added->contains(layer.name) ? "added" : "of the source";
    casts.push(Value::Map{{"name", layer.name},
                          {"origin", origin},
                          {"from", name_of(network.tensor(from).type)},
                          {"to", name_of(network.tensor(to).type)},
                          {"producer", producer == kNone ? fmt::format("the input {}", network.tensor(from).name)
                                                         : network.layer(producer).name},
                          {"readers", std::move(readers)}});
  }
  return casts;
}

Value typed_model(const AnswerFile& file, const std::filesystem::path& path) {
  if (path.empty()) return {};
  const OnnxDescription description = describe_onnx(path, false, {.ignore_external_data = true});
  const auto network = import_onnx(path, registry_with_onnxruntime(), {.ignore_external_data = true});
  const auto source = metadata_of(description, "ulpscope.source");
  const auto there = [&](const KeptLayer& kept) { return network->find_layer(kept.name) != kNone; };
  const auto& kept = file.answer.kept;
  if (source ? *source != file.model_hash : !kept.empty() && std::ranges::none_of(kept, there))
    throw invalid_argument(
        "[report] --typed {}: expected a typed model of '{}', got one of another model: {}", path.string(), file.model,
        source ? fmt::format("it was made from one with the hash {}, not {}", *source, file.model_hash)
               : fmt::format("it does not have the kept layer '{}'", kept.front().name));
  return Value::Map{{"path", path.string()}, {"casts", casts_of(*network, added_casts(description))}};
}

std::vector<std::string> convert_words(const AnswerFile& file, std::string_view ending) {
  const std::string stem = std::filesystem::path(file.model).stem().string();
  return {"convert", file.model, "--answer", file.path.string(), "-o", fmt::format("{}.{}.onnx", stem, ending)};
}

Value commands(const AnswerFile& file, const ReportOptions& options) {
  Value result{Value::Array{}};
  const auto add = [&](const char* title, const std::vector<std::string>& words) {
    result.push(Value::Array{title, command_of(words)});
  };
  const Answer& answer = file.answer;
  const bool tried = answer.verdict != Answer::Verdict::kUnverified || !answer.search.outputs.empty();
  if (tried) {
    // `run` takes the set of the search from a file.
    const bool named = !file.path.empty() && file.set_options.empty();
    std::vector<std::string> words = {"run", file.model};
    if (!named)
      std::ranges::copy(run_options(file), std::back_inserter(words));
    else
      words.insert(words.end(), {"--answer", file.path.string()});
    add("Build and run the network of this answer (add inputs and a comparison of your choice)", words);
    if (!file.path.empty()) {
      std::vector<std::string> converting = convert_words(file, "typed");
      converting.insert(converting.end(), file.set_options.begin(), file.set_options.end());
      add("Write the strongly typed model", converting);
    }
  }
  if (file.path.empty() || !file.set_options.empty()) return result;
  std::vector<std::string> words = {"report", file.path.string(), "-o", options.output.string()};
  if (!options.typed.empty()) words.insert(words.end(), {"--typed", options.typed.string()});
  if (options.compare) words.insert(words.end(), {"--compare", options.compare->path.string()});
  add("Write this page", words);
  return result;
}

/// From low to high, and what they hold: powers of two, of quantized ones those of the elements.
Value precisions() {
  Value result{Value::Array{}};
  for (const LayerForm& form : std::views::reverse(layer_forms())) {
    const auto& encoding = form.activation.encoding;
    const NumericFormat& format = format_of(encoding ? encoding->format : format_of(form.rounding));
    const int normal = format.is_float ? format.min_exponent() : -1;  // Half a step becomes one.
    result.push(Value::Map{
        {"name", form.name},
        {"scaled", form.is_quantized()},
        {"smallest", format.is_float ? normal - format.mantissa_bits : normal},
        {"normal", normal},
        {"largest", format.is_float ? std::round(std::log2(format.largest())) : std::log2(format.largest() + 0.5)}});
  }
  return result;
}

}  // namespace

std::string report(const AnswerFile& answer, const ReportOptions& options) {
  Value::Map args;
  args.emplace_back("answer", answer_to_json(answer));
  args.emplace_back("source", answer.path.string());
  args.emplace_back("precisions", precisions());
  args.emplace_back("commands", commands(answer, options));
  std::vector<std::string> words = convert_words(answer, "trial");
  words.emplace_back("--trial");
  args.emplace_back("trial_command", answer.path.empty() ? "" : command_of(words));
  args.emplace_back("typed", typed_model(answer, options.typed));
  args.emplace_back("compare", options.compare ? Value::Map{{"answer", answer_to_json(*options.compare)},
                                                            {"source", options.compare->path.string()}}
                                               : Value());
  return Worker::start()->call("report_page", std::move(args)).text();
}

}  // namespace ulpscope
