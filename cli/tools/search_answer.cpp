#include "tools/search_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compare/name_values.h"

namespace ulpscope::cli {
namespace {

class Words {
 public:
  void add(std::string word) { words_.push_back(std::move(word)); }
  void list(const char* option, const std::vector<std::string>& values) {
    if (values.empty()) return;
    add(option);
    for (const std::string& value : values) add(value);
  }
  void value(const char* option, const std::optional<std::string>& text) {
    if (text && !text->empty()) list(option, {*text});
  }
  void repeated(const char* option, const Repeated& values) {
    for (const std::vector<std::string>& each : values) list(option, each);
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

}  // namespace

std::string_view name_of(Fusion fusion) noexcept {
  switch (fusion) {
    case Fusion::kNone:
      return "none";
    case Fusion::kPointwise:
      return "pointwise";
    default:
      return "full";
  }
}

std::vector<std::string> enabled_precisions(const BuildOptions& build) {
  std::vector<std::string> result;
  if (build.tf32) result.emplace_back("tf32");
  if (build.fp16) result.emplace_back("fp16");
  if (build.bf16) result.emplace_back("bf16");
  if (build.fp8) result.emplace_back("fp8");
  if (build.int8) result.emplace_back("int8");
  return result;
}

std::vector<std::string> run_options(const PrecisionOptions& options, const Answer& answer, const Network& network,
                                     const SearchOptions& search, const std::string& calibration_cache,
                                     const std::string& answer_path) {
  Words words;
  words.add("--trt");
  for (const std::string& precision : enabled_precisions(search.build)) words.add("--" + precision);
  words.list("--fusion", {std::string(name_of(search.build.fusion))});
  if (search.build.assume_lowest) words.add("--assume-lowest");
  words.list("--precision-constraints", {"obey"});
  if (!calibration_cache.empty()) words.list("--calibration-cache", {calibration_cache});
  words.value("--target", options.config.target);
  words.repeated("--trt-min-shapes", options.config.min_shapes);
  words.repeated("--trt-opt-shapes", options.config.opt_shapes);
  words.repeated("--trt-max-shapes", options.config.max_shapes);
  words.value("--trt-config-script", options.config.config_script);
  words.value("--trt-config-postprocess-script", options.config.config_postprocess_script);
  words.list("--onnx-outputs", options.onnx.outputs);
  words.list("--onnx-exclude-outputs", options.onnx.exclude_outputs);
  words.value("--external-data-dir", options.onnx.external_data_dir);
  words.list("--trt-network-postprocess-script", options.network.postprocess_scripts);
  words.list("--trt-outputs", options.network.outputs);
  words.list("--trt-exclude-outputs", options.network.exclude_outputs);
  words.list("--tensor-dtypes", options.network.tensor_dtypes);

  // Layers that the search raised count more than what the user marked before.
  std::set<std::string> decided;
  std::vector<std::string> layers;
  for (const KeptLayer& layer : answer.kept) {
    decided.insert(layer.name);
    layers.push_back(fmt::format("{}:{}", layer.name, ulpscope::name_of(storage_of(layer.precision))));
  }
  for (const Layer& layer : network.layers)
    if (layer.precision && !decided.contains(layer.name))
      layers.push_back(fmt::format("{}:{}", layer.name, ulpscope::name_of(*layer.precision)));
  words.list("--layer-precisions", layers);

  std::vector<std::string> clamps = options.network.clamp_constants;
  // What has no option of its own is read from the answer: equalisations, and scales that came down with a clamp.
  const bool from_answer = std::ranges::any_of(answer.repairs, [&](const Repair& repair) {
    return !repair.exponents.empty() || (search.build.int8 && repair.kind == "clamp");
  });
  if (from_answer) words.list("--repairs", {answer_path});
  for (const Repair& repair : answer.repairs)
    if (!from_answer && repair.kind == "clamp") clamps.push_back(fmt::format("{}:{}", repair.name, repair.limit));
  words.list("--clamp-constants", clamps);
  return words.take();
}

void add_requested_layers(const Network& network, const SearchOptions& search, Answer& answer) {
  for (const LayerId id : search.keep) {
    const Layer& layer = network.layer(id);
    if (std::ranges::find(answer.kept, layer.name, &KeptLayer::name) != answer.kept.end()) continue;
    KeptLayer row;
    row.name = layer.name;
    row.op = layer.op->name;
    row.nodes = layer.nodes;
    row.precision = search.ladder.back();
    row.reason.kind = ReasonKind::kRequested;
    row.reason.text = "--keep names it; no trial says whether it needs that";
    answer.kept.push_back(std::move(row));
  }
}

}  // namespace ulpscope::cli
