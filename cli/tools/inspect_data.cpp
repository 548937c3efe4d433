// `ulpscope inspect data`: saved inputs and results.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "compare/accuracy.h"
#include "compare/array_files.h"
#include "compare/array_text.h"
#include "compare/histogram.h"
#include "compare/json_files.h"
#include "compare/statistics.h"
#include "core/file.h"
#include "core/messages.h"
#include "tools/inspect.h"
#include "tools/inspect_text.h"
#include "tools/tool.h"
#include "ulpscope/answer.h"

namespace ulpscope::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string describe(const TensorMap& tensors, const InspectDataOptions& options, int level) {
  ArrayTextOptions array;
  array.edge_items = options.num_items == -1 ? std::numeric_limits<std::int64_t>::max() : options.num_items;
  array.line_width = options.line_width == -1 ? std::numeric_limits<std::size_t>::max() / 2
                                              : static_cast<std::size_t>(options.line_width);
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += indent_block(
        fmt::format("\n{} | Stats: {}", tensor_text(name, name_of(tensor.type()), to_string(tensor.shape())),
                    to_string(compute_statistics(tensor), tensor.size() == 0)),
        level - 1);
    if (options.histogram) {
      const auto histogram = compute_histogram(tensor);
      text += '\n';  // as Polygraphy, a line in any case
      text += indent_block(histogram ? to_text(*histogram) : "", level);
    }
    if (options.show_values) {
      text += '\n';
      text += indent_block(array_text(tensor, array), level);
    }
  }
  return text;
}

template <typename Iterations, typename Tensors>
std::string describe_all(const Iterations& iterations, const InspectDataOptions& options, const Tensors& tensors_of) {
  std::string text;
  const bool titled = options.all && iterations.size() > 1;
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    if (titled) text += fmt::format("\n-- Iteration: {}", i);
    text += describe(tensors_of(iterations[i]), options, titled ? 2 : 1);
    if (titled) text += "\n";
    if (!options.all) break;
  }
  return text;
}

Json tensors_json(const TensorMap& tensors) {
  Json json = Json::array();
  for (const auto& [name, tensor] : tensors) {
    const Statistics statistics = compute_statistics(tensor);
    json.push_back({{"name", name},
                    {"type", name_of(tensor.type())},
                    {"shape", tensor.shape()},
                    {"mean", statistics.mean},
                    {"std_dev", statistics.std_dev},
                    {"median", statistics.median},
                    {"min", statistics.min},
                    {"min_index", statistics.min_index},
                    {"max", statistics.max},
                    {"max_index", statistics.max_index},
                    {"avg_magnitude", statistics.avg_magnitude}});
  }
  return json;
}

template <typename Iterations, typename Tensors>
Json iterations_json(const Iterations& iterations, const InspectDataOptions& options, const Tensors& tensors_of) {
  Json json = Json::array();
  for (std::size_t i = 0; i < iterations.size() && (i == 0 || options.all); ++i)
    json.push_back(tensors_json(tensors_of(iterations[i])));
  return json;
}

const TensorMap& outputs_of(const IterationResult& result) { return result.outputs; }
const TensorMap& itself(const TensorMap& tensors) { return tensors; }

void show_results(const RunResults& results, const InspectDataOptions& options) {
  if (options.json) {
    Json json{{"kind", "results"}, {"runners", Json::array()}};
    for (const auto& [name, iterations] : results)
      json["runners"].push_back({{"name", name},
                                 {"num_iterations", iterations.size()},
                                 {"iterations", iterations_json(iterations, options, outputs_of)}});
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  std::size_t width = 0;
  for (const auto& [name, iterations] : results) width = std::max(width, name.size());
  std::string text = fmt::format("==== Run Results ({} runners) ====\n\n", results.size());
  for (const auto& [name, iterations] : results) {
    text += fmt::format("---- {:<{}} ({} iterations) ----\n", name, width, iterations.size());
    text += describe_all(iterations, options, outputs_of) + "\n";
  }
  log_info(stripped(text));
}

void show_inputs(const std::vector<TensorMap>& inputs, const InspectDataOptions& options) {
  if (options.json) {
    const Json json{{"kind", "inputs"},
                    {"num_iterations", inputs.size()},
                    {"iterations", iterations_json(inputs, options, itself)}};
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  log_info(stripped(
      fmt::format("==== Data ({} iterations) ====\n{}\n", inputs.size(), describe_all(inputs, options, itself))));
}

void show_accuracy(const std::vector<SavedComparison>& comparisons, const InspectDataOptions& options) {
  Json json{{"kind", "accuracy-results"}, {"comparisons", Json::array()}};
  std::string text = fmt::format("==== Accuracy Results ({} comparison(s)) ====\n", comparisons.size());
  for (const SavedComparison& comparison : comparisons) {
    text += fmt::format("\n---- Aggregation: {} ----\n", comparison.aggregation);
    Json pairs = Json::array();
    for (const SavedPair& pair : comparison.pairs) {
      const auto matched = std::ranges::count_if(pair.iterations, [](const std::vector<SavedVerdict>& outputs) {
        return std::ranges::all_of(outputs, &SavedVerdict::passed);
      });
      text += indent_block(fmt::format("\n{} vs. {} | {}/{} iteration(s) matched\n", pair.first, pair.second, matched,
                                       pair.iterations.size()),
                           0);
      Json iterations = Json::array();
      for (std::size_t i = 0; i < pair.iterations.size() && (i == 0 || options.all); ++i) {
        text += indent_block(fmt::format("\n-- Iteration: {}", i), 1);
        Json outputs = Json::array();
        for (const SavedVerdict& verdict : pair.iterations[i]) {
          std::vector<std::string> metrics;
          Json numbers = Json::object();
          for (const auto& [name, value] : verdict.metrics) {
            metrics.push_back(fmt::format("{}={}", name, format_g5(value)));
            numbers[name] = value;
          }
          text += indent_block(fmt::format("\n{} | {}{}{}", verdict.output, verdict.passed ? "PASSED" : "FAILED",
                                           metrics.empty() ? "" : " | ", fmt::join(metrics, ", ")),
                               2);
          outputs.push_back({{"name", verdict.output}, {"passed", verdict.passed}, {"metrics", std::move(numbers)}});
        }
        iterations.push_back(std::move(outputs));
      }
      pairs.push_back({{"first", pair.first},
                       {"second", pair.second},
                       {"num_iterations", pair.iterations.size()},
                       {"num_matched", matched},
                       {"iterations", std::move(iterations)}});
      text += '\n';
    }
    json["comparisons"].push_back({{"aggregation", comparison.aggregation}, {"pairs", std::move(pairs)}});
  }
  if (options.json)
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  else
    log_info(stripped(indent_block(text, 0)));
}

class InspectDataTool : public Tool {
 public:
  std::string description() const override {
    return "\n\nReads what --save-inputs and --save-outputs of `run` wrote (also Polygraphy's), a file or a folder of\n"
           "one file per iteration.";
  }
  void declare(OptionTable& table) override {
    table.section("Data", "the data that is shown.");
    table.positional("FILE", path_, "Saved inputs or results", true);
    table.flag({"-a", "--all"}, options_.all, "Show all iterations, not the first alone");
    table.flag({"-s", "--show-values"}, options_.show_values, "Show the values too");
    table.flag({"--histogram"}, options_.histogram, "Show how the values are distributed");
    table.value({"-n", "--num-items"}, num_items_, "N",
                "Values at the beginning and end of each dimension of large arrays; -1: all (default: 3)");
    table.value({"--line-width"}, line_width_, "N", "Characters per line of values; -1: no limit (default: 75)");
    table.ours().flag({"--json"}, options_.json,
                      "Print a JSON object (docs/formats.md) instead; log lines go to stderr");
  }
  bool owns_stdout() const override { return options_.json; }
  int run() override {
    const auto check = [](const std::optional<int>& value, const char* option, int fallback) {
      if (value && *value < -1) throw invalid_argument("[options] {}: expected -1 or more, got {}", option, *value);
      return value.value_or(fallback);
    };
    options_.num_items = check(num_items_, "--num-items", 3);
    options_.line_width = check(line_width_, "--line-width", 75);
    inspect_data(*path_, options_);
    return 0;
  }

 private:
  std::optional<std::string> path_;
  std::optional<int> num_items_, line_width_;
  InspectDataOptions options_;
};

}  // namespace

FileKind sniff_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    return files.empty() ? FileKind::kJson : sniff_file(*std::ranges::min_element(files));
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) == 0)
    return FileKind::kOther;
  const auto file = MappedFile::open(path);
  const auto bytes = std::as_const(*file).bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("ULPSPLAN")) return FileKind::kPlan;
  constexpr std::size_t kEnds = 4096;  // class marks stand at either end of an object
  const std::string_view head = text.substr(0, kEnds), tail = text.substr(text.size() - std::min(text.size(), kEnds));
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (head[first] != '{' && head[first] != '[')) return FileKind::kOther;
  const auto marked = [&](std::string_view name) {
    return head.find(name) != std::string_view::npos || tail.find(name) != std::string_view::npos;
  };
  if (head.find("\"ulpscope-answer\"") != std::string_view::npos) return FileKind::kAnswer;
  if (marked("\"AccuracyResults\"")) return FileKind::kAccuracyResults;
  if (marked("\"RunResults\"") || marked("__polygraphy_encoded_RunResults")) return FileKind::kResults;
  return FileKind::kJson;
}

void inspect_data(const std::filesystem::path& path, const InspectDataOptions& options) {
  switch (sniff_file(path)) {
    case FileKind::kAnswer:
      if (options.json)
        fmt::print("{}", answer_to_json(read_answer(path)));
      else
        log_info("==== Answer of a Search ====\n" + answer_text(read_answer(path), options.all));
      return;
    case FileKind::kResults:
      return show_results(load_results(path), options);
    case FileKind::kAccuracyResults:
      return show_accuracy(load_accuracy(path), options);
    case FileKind::kPlan:
      throw invalid_argument("[load] {}: expected saved inputs or results, got an engine; try `ulpscope inspect model`",
                             path.string());
    default:
      return show_inputs(load_samples(path, {}), options);
  }
}

std::unique_ptr<Tool> make_inspect_data_tool() { return std::make_unique<InspectDataTool>(); }

}  // namespace ulpscope::cli
