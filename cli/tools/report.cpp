#include "tools/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/file.h"
#include "interrupt.h"
#include "onnx/description.h"
#include "onnx/import.h"
#include "ops/registry.h"
#include "precision/answer_json.h"
#include "precision/answer_text.h"
#include "runners/worker.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

namespace fs = std::filesystem;

std::string command_of(const std::vector<std::string>& words) {
  std::string line = "ulpscope";
  for (const std::string& word : words) line += " " + shell_word(word);
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
    if (layer.op->name != "Cast" || layer.inputs.empty() || layer.outputs.empty()) continue;
    const TensorId from = layer.inputs[0], to = layer.outputs[0];
    if (from == kNone || to == kNone) continue;
    const LayerId producer = network.tensor(from).producer;
    Value readers{Value::Array{}};
    for (const LayerId id : consumers[static_cast<std::size_t>(to)]) readers.push(network.layer(id).name);
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

class ReportTool : public Tool {
 public:
  std::string name() const override { return "report"; }
  std::string summary() const override { return "Write a page that shows the answer of a search."; }
  std::string description() const override {
    return summary() +
           "\n\n    ulpscope report model.answer.json -o report.html\n\n"
           "One HTML file that needs no network: the verdict, the error of all trials against their estimated time,\n"
           "the sensitivity of every layer, why each kept layer is kept, and the commands that reproduce it. The "
           "charts\n"
           "are made with the Python package plotly.";
  }

  void declare(OptionTable& table) override {
    table.section("Answer", "what is shown.");
    table.positional("ANSWER", answer_, "The answer of `precision search` (.answer.json)", /*required=*/true);
    table.value({"--typed"}, typed_, "FILE", "A typed model that `convert` made of it: the page lists its casts")
        .ours();
    table.section("Output", "the page.");
    table.value({"-o", "--output"}, output_, "FILE",
                "Where to write the page (default: ANSWER's name with .html, in the current folder)");
  }

  int run() override {
    const fs::path source(*answer_);
    const AnswerFile file = read_answer(source);
    const fs::path output = output_ ? fs::path(*output_) : default_output(source);
    check_output(output, source);
    Value::Map args;
    args.emplace_back("answer", answer_to_json(file));
    args.emplace_back("source", source.string());
    args.emplace_back("commands", commands(file, output));
    args.emplace_back("typed", typed(file));
    const std::shared_ptr<Worker> worker = Worker::start(worker_options());
    const std::string page = worker->call("report_page", std::move(args)).text();
    const WritingFile writing;
    write_file(output, page);
    log_info("Saving report to " + output.string());
    return 0;
  }

 private:
  static WorkerOptions worker_options() {
    WorkerOptions options = default_worker_options();
    options.interrupted = interrupted;
    return options;
  }

  /// "x.answer.json" becomes "x.html".
  static fs::path default_output(const fs::path& source) {
    std::string name = source.filename().string();
    for (const std::string_view ending : {".json", ".answer"})
      if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
    return name + ".html";
  }

  /// Found out before Python starts.
  static void check_output(const fs::path& output, const fs::path& source) {
    std::error_code ignored;
    if (fs::equivalent(output, source, ignored))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("[report] '{}': expected another file for the page than the answer, got the same; try -o "
                              "report.html",
                              output.string()));
    if (fs::is_directory(output, ignored))
      throw Error(ErrorCode::kIo, fmt::format("[report] '{}': expected a file to write, got a folder; try -o {}",
                                              output.string(), (output / "report.html").string()));
  }

  Value typed(const AnswerFile& file) const {
    if (!typed_) return {};
    const OnnxDescription description = describe_onnx(*typed_, false, {.ignore_external_data = true});
    const auto network = import_onnx(fs::path(*typed_), op_registry(), {.ignore_external_data = true});
    const auto source = metadata_of(description, "ulpscope.source");
    const auto there = [&](const KeptLayer& kept) { return network->find_layer(kept.name) != kNone; };
    const auto& kept = file.answer.kept;
    if (source ? *source != file.model_hash : !kept.empty() && std::ranges::none_of(kept, there))
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[report] --typed {}: expected a typed model of '{}', got one of another model: {}", *typed_,
                      file.model,
                      source ? fmt::format("it was made from one with the hash {}, not {}", *source, file.model_hash)
                             : fmt::format("it does not have the kept layer '{}'", kept.front().name)));
    return Value::Map{{"path", *typed_}, {"casts", casts_of(*network, added_casts(description))}};
  }

  Value commands(const AnswerFile& file, const fs::path& output) const {
    Value result{Value::Array{}};
    const auto add = [&](const char* title, const std::vector<std::string>& words) {
      result.push(Value::Array{title, command_of(words)});
    };
    const Answer& answer = file.answer;
    const bool tried = answer.verdict != Answer::Verdict::kUnverified || !answer.search.outputs.empty();
    if (tried) {
      std::vector<std::string> words = {"run", file.model};
      words.insert(words.end(), file.run_options.begin(), file.run_options.end());
      add("Build and run the network of this answer (add inputs and a comparison of your choice)", words);
      const std::string stem = fs::path(file.model).stem().string();
      add("Write the strongly typed model", {"convert", file.model, "--answer", *answer_, "-o", stem + ".typed.onnx"});
    }
    std::vector<std::string> words = {"report", *answer_, "-o", output.string()};
    if (typed_) words.insert(words.end(), {"--typed", *typed_});
    add("Write this page", words);
    return result;
  }

  std::optional<std::string> answer_, typed_, output_;
};

}  // namespace

std::unique_ptr<Tool> make_report_tool() { return std::make_unique<ReportTool>(); }

}  // namespace ulpscope::cli
