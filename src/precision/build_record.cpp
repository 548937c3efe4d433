#include "precision/build_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <variant>

#include "graph/layer_form.h"
#include "precision/repair.h"

namespace ulpscope {
namespace {

std::string clamp_word(const Repair& repair, const Clamp& clamp) {
  return fmt::format("{}:{}", repair.name, clamp.limit);
}

bool has_quantized(const AnswerFile& file) {
  return std::ranges::any_of(layer_forms(), [&](const LayerForm& form) {
    return form.is_quantized() && std::ranges::find(file.precisions, form.name) != file.precisions.end();
  });
}

std::set<std::string> kept_names(const Answer& answer) {
  std::set<std::string> names;
  for (const KeptLayer& layer : answer.kept) names.insert(layer.name);
  return names;
}

/// Options that say what the rest of an answer says, too.
bool says_nothing_new(const std::string& option) {
  static const std::set<std::string> kReadFromAnswer = {
      "--trt",     "--fusion",  "--accumulation",      "--attention",
      "--formats", "--repairs", "--calibration-cache", "--precision-constraints"};
  return kReadFromAnswer.contains(option) ||
         std::ranges::any_of(layer_forms(), [&](const LayerForm& form) { return form.flag() == option; });
}

}  // namespace

std::vector<std::string> run_options(const AnswerFile& file) {
  const BuildRecord& build = file.build;
  std::vector<std::string> words{"--trt"};
  const auto add = [&](const std::string& option, const std::vector<std::string>& values) {
    if (!values.empty()) words.push_back(option);
    words.insert(words.end(), values.begin(), values.end());
  };
  const auto add_text = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) add(option, {value});
  };
  std::vector<std::string> formats;
  for (const std::string& name : file.precisions) {
    const auto precision = precision_named(name);
    const bool has_flag = !precision || form_of(*precision).flag().find(' ') == std::string::npos;
    if (has_flag)
      words.push_back("--" + name);
    else
      formats.push_back(name);
  }
  add("--formats", formats);
  add_text("--fusion", file.fusion);
  if (file.accumulation != "fp32") add_text("--accumulation", file.accumulation);
  if (file.attention != "normalized") add_text("--attention", file.attention);
  if (build.assume_lowest) words.emplace_back("--assume-lowest");
  add("--precision-constraints", {"obey"});
  add_text("--calibration-cache", file.calibration_cache);
  // What was measured is in the answer.
  add_text("--weight-scales", file.mean_squares.empty() ? file.weight_scales : file.path.string());
  add_text("--mx-scale-rule", file.mx_scale_rule);
  add_text("--target", build.target);
  add_text("--external-data-dir", build.external_data_dir);
  for (const BuildRecord::Change& each : build.changes) add(each.option, each.values);

  // Layers that the search raised count more than what was asked for before.
  const std::set<std::string> decided = kept_names(file.answer);
  std::vector<std::string> layers;
  for (const KeptLayer& layer : file.answer.kept)
    layers.push_back(fmt::format("{}:{}", layer.name, form_of(layer.precision).request()));
  for (const auto& [name, type] : build.layer_precisions)
    if (!decided.contains(name)) layers.push_back(fmt::format("{}:{}", name, type));
  add("--layer-precisions", layers);

  std::vector<std::string> clamps = build.clamp_constants;
  // What has no option of its own is read from the answer: all but clamps, and scales that came down with these.
  const auto& repairs = file.answer.repairs;
  const bool from_answer = std::ranges::any_of(repairs, [&](const Repair& repair) {
    return changes_network(repair) && (has_quantized(file) || !std::holds_alternative<Clamp>(repair.change));
  });
  if (from_answer) add("--repairs", {file.path.string()});
  for (const Repair& repair : repairs)
    if (const auto* clamp = std::get_if<Clamp>(&repair.change); clamp != nullptr && !from_answer)
      clamps.push_back(clamp_word(repair, *clamp));
  add("--clamp-constants", clamps);
  return words;
}

BuildRecord build_of_words(const AnswerFile& file, const std::vector<std::string>& words) {
  std::vector<BuildRecord::Change> options;
  for (const std::string& word : words) {
    if (word.starts_with("--"))
      options.push_back({word, {}});
    else if (!options.empty())
      options.back().values.push_back(word);
  }
  const std::set<std::string> kept = kept_names(file.answer);
  std::set<std::string> clamps;
  for (const Repair& repair : file.answer.repairs)
    if (const auto* clamp = std::get_if<Clamp>(&repair.change)) clamps.insert(clamp_word(repair, *clamp));
  BuildRecord build;
  for (const BuildRecord::Change& each : options) {
    if (says_nothing_new(each.option)) continue;
    if (each.option == "--assume-lowest") {
      build.assume_lowest = true;
    } else if (each.option == "--target" && each.values.size() == 1) {
      build.target = each.values.front();
    } else if (each.option == "--external-data-dir" && each.values.size() == 1) {
      build.external_data_dir = each.values.front();
    } else if (each.option == "--clamp-constants") {
      for (const std::string& word : each.values)
        if (!clamps.contains(word)) build.clamp_constants.push_back(word);
    } else if (each.option == "--layer-precisions") {
      for (const std::string& word : each.values)
        if (const std::size_t colon = word.rfind(':');
            colon != std::string::npos && !kept.contains(word.substr(0, colon)))
          build.layer_precisions.emplace_back(word.substr(0, colon), word.substr(colon + 1));
    } else {
      build.changes.push_back(each);
    }
  }
  return build;
}

namespace json {

Json from_build(const BuildRecord& build) {
  Json layers = Json::object(), changes = Json::array();
  for (const auto& [name, type] : build.layer_precisions) layers[name] = type;
  for (const auto& [option, values] : build.changes) changes.push_back({{"option", option}, {"values", values}});
  return {{"assume_lowest", build.assume_lowest},         {"target", build.target},
          {"external_data_dir", build.external_data_dir}, {"layer_precisions", std::move(layers)},
          {"clamp_constants", build.clamp_constants},     {"changes", std::move(changes)}};
}

BuildRecord to_build(const Reader& reader) {
  BuildRecord build{reader.at("assume_lowest").boolean(), reader.at("target").text(),
                    reader.at("external_data_dir").text()};
  reader.at("layer_precisions").members([&](const std::string& name, const Reader& type) {
    build.layer_precisions.emplace_back(name, type.text());
  });
  build.clamp_constants = to_texts(reader.at("clamp_constants"));
  reader.at("changes").each(
      [&](const Reader& each) { build.changes.push_back({each.at("option").text(), to_texts(each.at("values"))}); });
  return build;
}

}  // namespace json

}  // namespace ulpscope
