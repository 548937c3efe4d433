// `ulpscope inspect diff`: how two engines, sets of layer precisions or saved results differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "compare/array_files.h"
#include "compare/difference.h"
#include "compare/json_files.h"
#include "compare/name_values.h"
#include "compare/statistics.h"
#include "core/counted.h"
#include "core/file.h"
#include "core/messages.h"
#include "core/text.h"
#include "runtime/engine.h"
#include "tools/inspect.h"
#include "tools/tool.h"
#include "ulpscope/log.h"

namespace ulpscope::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The precision of one layer, and why.
struct LayerChoice {
  std::string name, precision, reason;
};
using LayerChoices = std::vector<LayerChoice>;
using Content = std::variant<LayerChoices, RunResults>;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& message) {
  throw invalid_file("[diff] {}: {}", path.string(), message);
}

/// "fp16", "float16" and "FLOAT16" are one.
std::string canonical_precision(const std::string& word) {
  const std::string text = lower_case(word);
  const std::optional<DataType> type = data_type_from_name(text);
  return type ? std::string(name_of(*type)) : text;
}

std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// {"layers": [{"name", "precision", "reason"}]}, the same under "engine", or {"name": "precision"}.
LayerChoices layers_from_json(const Json& json, const std::filesystem::path& path) {
  LayerChoices result;
  const Json* layers = nullptr;
  if (json.is_object()) {
    if (const auto found = json.find("layers"); found != json.end()) layers = &*found;
    if (const auto engine = json.find("engine"); layers == nullptr && engine != json.end() && engine->is_object())
      if (const auto found = engine->find("layers"); found != engine->end()) layers = &*found;
  }
  if (layers != nullptr && layers->is_array()) {
    for (const Json& layer : *layers) {
      LayerChoice choice{text_member(layer, "name"), canonical_precision(text_member(layer, "precision")),
                         text_member(layer, "reason")};
      // The answer of a search says more of a reason than its text.
      if (const auto reason = layer.find("reason"); reason != layer.end() && reason->is_object())
        choice.reason = text_member(*reason, "text");
      if (choice.name.empty() || choice.precision.empty())
        fail(path, fmt::format("layer {}: expected the keys \"name\" and \"precision\"", result.size()));
      result.push_back(std::move(choice));
    }
    return result;
  }
  const bool plain = json.is_object() && !json.empty() &&
                     std::ranges::all_of(json, [](const Json& value) { return value.is_string(); });
  if (!plain)
    fail(path,
         "expected an engine, saved results, {\"layers\": [{\"name\", \"precision\"}]}, {\"layer\": \"type\"} or lines "
         "of layer:type");
  for (const auto& [name, type] : json.items())
    result.push_back({name, canonical_precision(type.get<std::string>()), ""});
  return result;
}

/// layer:type per line, as --layer-precisions takes them; # begins a comment.
LayerChoices layers_from_lines(const std::string& text, const std::filesystem::path& path) {
  LayerChoices result;
  std::size_t at = 0, number = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    auto [name, type] = split_name(line);
    if (name.empty() || !data_type_from_name(canonical_precision(type))) {
      const bool readable = std::ranges::all_of(line, [](char c) { return static_cast<unsigned char>(c) >= 32; });
      fail(path, readable && line.size() < 200
                     ? fmt::format("line {}: expected layer:type, got '{}'", number, line)
                     : "expected an engine, saved results, or layer precisions (JSON, or lines of layer:type)");
    }
    result.push_back({std::move(name), canonical_precision(type), ""});
  }
  return result;
}

Content load(const std::filesystem::path& path) {
  switch (sniff_file(path)) {
    case FileKind::kPlan: {
      LayerChoices result;
      const std::shared_ptr<Engine> engine = Engine::load(path);
      for (const Engine::LayerReport& layer : engine->report())
        result.push_back({layer.name, canonical_precision(layer.precision), layer.reason});
      return result;
    }
    case FileKind::kResults:
      return load_results(path);
    case FileKind::kAccuracyResults:
      fail(path, "holds verdicts; expected an engine, saved results or layer precisions");
    case FileKind::kAnswer:
    case FileKind::kJson: {
      if (std::filesystem::is_directory(path)) break;
      const Json json = Json::parse(read_file(path), nullptr, false);
      if (json.is_discarded()) fail(path, "malformed JSON");
      if (json.is_object()) return layers_from_json(json, path);
      break;
    }
    case FileKind::kOther:
      if (path.extension() == ".npz" || path.extension() == ".npy") break;
      return layers_from_lines(read_file(path), path);
  }
  // Saved inputs, as if one runner had given them.
  std::vector<IterationResult> iterations;
  for (TensorMap& inputs : load_samples(path, {})) iterations.push_back({std::move(inputs), std::nullopt, "inputs"});
  return RunResults{{"inputs", std::move(iterations)}};
}

struct Report {
  bool equal = true;
  Json json;
};

std::string with_reason(const LayerChoice& layer) {
  return layer.reason.empty() ? layer.precision : fmt::format("{} ({})", layer.precision, layer.reason);
}

void log_names(const char* title, const std::vector<std::string>& names) {
  if (!names.empty()) log_info("{} ({}): {}", title, names.size(), fmt::join(names, ", "));
}

Report compare_layers(const LayerChoices& a, const LayerChoices& b) {
  std::map<std::string, const LayerChoice*> second;
  for (const LayerChoice& layer : b) second.emplace(layer.name, &layer);
  std::vector<std::string> only_a, only_b;
  std::vector<std::pair<const LayerChoice*, const LayerChoice*>> different;
  std::size_t common = 0;
  for (const LayerChoice& layer : a) {
    const auto found = second.find(layer.name);
    if (found == second.end()) {
      only_a.push_back(layer.name);
      continue;
    }
    ++common;
    if (layer.precision != found->second->precision) different.emplace_back(&layer, found->second);
    second.erase(found);
  }
  for (const LayerChoice& layer : b)
    if (second.contains(layer.name)) only_b.push_back(layer.name);

  Report report;
  report.equal = only_a.empty() && only_b.empty() && different.empty();
  report.json = {{"kind", "layers"}, {"equal", report.equal}, {"common", common},
                 {"only_a", only_a}, {"only_b", only_b},      {"different", Json::array()}};
  log_names("Layers of A alone", only_a);
  log_names("Layers of B alone", only_b);
  for (const auto& [first, other] : different) {
    log_info("{} | A: {} | B: {}", first->name, with_reason(*first), with_reason(*other));
    report.json["different"].push_back({{"name", first->name},
                                        {"a", {{"precision", first->precision}, {"reason", first->reason}}},
                                        {"b", {{"precision", other->precision}, {"reason", other->reason}}}});
  }
  log_info("{} of {} common layer(s) differ in precision", different.size(), common);
  return report;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

/// How two outputs of one name differ, for people and as an object.
struct Gap {
  std::string text;
  Json json;
};

/// Nothing where they are equal bit by bit.
std::optional<Gap> gap_between(const Tensor& a, const Tensor& b) {
  if (same_bytes(a, b)) return std::nullopt;
  if (a.shape() != b.shape())
    return Gap{fmt::format("shape {} in A, {} in B", to_string(a.shape()), to_string(b.shape())),
               {{"difference", "shape"}}};
  const Difference gap = difference(a, b, true);
  const double absolute = max_of(gap.absolute), relative = max_of(gap.relative);
  const std::string types =
      a.type() == b.type() ? "" : fmt::format(" | types {} and {}", name_of(a.type()), name_of(b.type()));
  return Gap{fmt::format("max absolute difference {}, max relative {}, mean absolute {}{}", format_g5(absolute),
                         format_g5(relative), format_g5(static_cast<double>(mean_f32(gap.absolute))), types),
             {{"difference", "values"}, {"max_abs", absolute}, {"max_rel", relative}}};
}

/// How many of A and B there are to compare: the first of each, with a warning where one has more. Clears `equal` then.
std::size_t common_count(const char* what, std::size_t a, std::size_t b, bool& equal) {
  if (a == b) return a;
  log_warning("A has {} {}(s), B {}: only the first {} are compared", a, what, b, std::min(a, b));
  equal = false;
  return std::min(a, b);
}

Report compare_results(const RunResults& a, const RunResults& b) {
  Report report;
  report.json = {{"kind", "results"}, {"equal", true}, {"runners", Json::array()}};
  const std::size_t runners = common_count("runner", a.size(), b.size(), report.equal);
  for (std::size_t r = 0; r < runners; ++r) {
    const auto& [name_a, first] = a[r];
    const auto& [name_b, second] = b[r];
    log_info("{} (A) and {} (B)", name_a, name_b);
    const LogIndent indent;
    Json outputs = Json::array();
    const std::size_t iterations = common_count("iteration", first.size(), second.size(), report.equal);
    std::size_t same = 0, all = 0;
    for (std::size_t i = 0; i < iterations; ++i) {
      const auto add = [&](const std::string& name, const std::optional<Gap>& gap) {
        ++all;
        if (!gap) return static_cast<void>(++same);
        report.equal = false;
        log_info("{}{} | {}", iterations > 1 ? fmt::format("iteration {} | ", i) : "", name, gap->text);
        outputs.push_back({{"iteration", i}, {"name", name}});
        outputs.back().update(gap->json);
      };
      for (const auto& [name, tensor] : first[i].outputs) {
        const Tensor* other = second[i].find(name);
        add(name, other != nullptr ? gap_between(tensor, *other) : Gap{"in A alone", {{"difference", "only_a"}}});
      }
      for (const auto& [name, tensor] : second[i].outputs)
        if (first[i].find(name) == nullptr) add(name, Gap{"in B alone", {{"difference", "only_b"}}});
    }
    log_info("{} of {} output(s) are equal bit by bit", same, all);
    report.json["runners"].push_back({{"a", name_a}, {"b", name_b}, {"outputs", std::move(outputs)}});
  }
  report.json["equal"] = report.equal;
  return report;
}

std::string kind_of(const Content& content) {
  return std::holds_alternative<LayerChoices>(content)
             ? fmt::format("precisions of {}", counted(std::ssize(std::get<LayerChoices>(content)), "layer"))
             : fmt::format("results of {}", counted(std::ssize(std::get<RunResults>(content)), "runner"));
}

class InspectDiffTool : public Tool {
 public:
  std::string description() const override {
    return "\n\nA and B are both precisions of layers (an engine of --save-engine, a JSON object with a list "
           "\"layers\" of\n"
           "objects with \"name\", \"precision\" and, if known, \"reason\", such as `inspect model --json` prints, a "
           "JSON\n"
           "object from layer to type, or lines of layer:type), or both saved results or inputs. The exit status is 0\n"
           "if they are the same, 1 if they differ.";
  }
  void declare(OptionTable& table) override {
    table.section("Files", "what is compared.");
    table.positional("A", a_, "The first file", true);
    table.more_positionals({"B"}, b_, "The second file");
    table.ours().flag({"--json"}, json_, "Print a JSON object (docs/formats.md) instead; log lines go to stderr");
  }
  bool owns_stdout() const override { return json_; }
  int run() override {
    const Content first = load(*a_), second = load(b_.at(0));
    log_info("A: {} | {}", *a_, kind_of(first));
    log_info("B: {} | {}", b_[0], kind_of(second));
    if (first.index() != second.index())
      throw invalid_argument("[diff] expected two of a kind, got {} in '{}' and {} in '{}'", kind_of(first), *a_,
                             kind_of(second), b_[0]);
    const Report report = std::holds_alternative<LayerChoices>(first)
                              ? compare_layers(std::get<LayerChoices>(first), std::get<LayerChoices>(second))
                              : compare_results(std::get<RunResults>(first), std::get<RunResults>(second));
    if (json_) fmt::print("{}\n", report.json.dump(2, ' ', false, Json::error_handler_t::replace));
    log_info(report.equal ? "The two are the same" : "The two differ");
    return report.equal ? 0 : 1;
  }

 private:
  std::optional<std::string> a_;
  std::vector<std::string> b_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Tool> make_inspect_diff_tool() { return std::make_unique<InspectDiffTool>(); }

}  // namespace ulpscope::cli
