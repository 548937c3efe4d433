#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "compare/accuracy.h"
#include "compare/json_access.h"
#include "core/file.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Json = nlohmann::ordered_json;

/// Python's NaN and infinities, which JSON lacks, as texts.
std::string with_quoted_numbers(std::string_view text) {
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!quoted) {
      const auto word = [&](std::string_view name) { return text.substr(i).starts_with(name); };
      bool found = false;
      for (const std::string_view name : {"-Infinity", "Infinity", "NaN"}) {
        if (!word(name)) continue;
        result += '"';
        result += name;
        result += '"';
        i += name.size() - 1;
        found = true;
        break;
      }
      if (found) continue;
    } else if (text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
      result += text[i];
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    result += text[i];
  }
  return result;
}

const Json& list(const Json& json, const std::string& where) {
  if (!json.is_array()) fail_at(where, "expected a list");
  return json;
}

std::string text_of(const Json& json, const std::string& where) {
  if (!json.is_string()) fail_at(where, "expected a text");
  return json.get<std::string>();
}

/// Nothing for null.
std::optional<double> number_of(const Json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  fail_at(where, "expected a number");
}

double threshold_of(const Json& thresholds, const char* key, const std::string& where) {
  const std::optional<double> value = number_of(member(thresholds, key, where), where);
  if (!value) fail_at(where, std::string("expected a number as \"") + key + "\"");
  return *value;
}

bool simple_passed(const Json& result, const std::string& where) {
  if (const Json& passed = member(result, "passed", where); passed.is_boolean()) return passed.get<bool>();
  const Json& thresholds = member(result, "thresholds", where);
  const std::string stat = text_of(member(thresholds, "check_error_stat", where), where);
  const auto error = [&](const char* suffix) {
    return number_of(member(result, (stat + suffix).c_str(), where), where)
        .value_or(std::numeric_limits<double>::quiet_NaN());
  };
  return error("_absdiff") <= threshold_of(thresholds, "atol", where) ||
         error("_reldiff") <= threshold_of(thresholds, "rtol", where);
}

struct KnownResult {
  std::string_view name;
  const char* metric;
  bool higher_is_better;
};

constexpr std::array kResults{KnownResult{"L2Result", "l2_norm", false},
                              KnownResult{"CosineSimilarityResult", "cosine_similarity", true},
                              KnownResult{"PsnrResult", "psnr", true}, KnownResult{"SnrResult", "snr", true},
                              KnownResult{"PerceptualMetricsResult", "lpips", false}};

bool result_passed(const Json& result, const std::string& where) {
  const std::string type = text_of(member(result, "polygraphy_class", where), where);
  if (type == "OutputCompareResult") return simple_passed(result, where);
  for (const KnownResult& known : kResults) {
    if (known.name != type) continue;
    const std::optional<double> value = number_of(member(result, known.metric, where), where);
    if (!value) return type == "PerceptualMetricsResult";  // LPIPS that could not be computed counts as passed there
    const double threshold = threshold_of(member(result, "thresholds", where), "threshold", where);
    return known.higher_is_better ? *value >= threshold : *value <= threshold;
  }
  fail_at(where, "results of class '" + type + "' are not known here; try `polygraphy inspect data`",
          ErrorCode::kUnsupported);
}

SavedVerdict read_verdict(const std::string& output, const Json& json, const std::string& where) {
  SavedVerdict verdict{output, false, {}};
  if (json.is_boolean()) {
    verdict.passed = json.get<bool>();
    return verdict;
  }
  verdict.passed = result_passed(json, where);
  for (const auto& [key, value] : json.items()) {
    if (key == "thresholds" || key == "passed" || key == "polygraphy_class") continue;
    if (const auto number = number_of(value, where)) verdict.metrics.emplace_back(key, *number);
  }
  return verdict;
}

SavedPair read_pair(const Json& json, const std::string& where) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_array() || json[0].size() != 2)
    fail_at(where, "expected a pair of runner names and a list of iterations");
  SavedPair pair{text_of(json[0][0], where), text_of(json[0][1], where), {}};
  for (const Json& iteration : list(json[1], where)) {
    if (!iteration.is_object()) fail_at(where, "expected an object from output names to results");
    auto& verdicts = pair.iterations.emplace_back();
    for (const auto& [output, result] : iteration.items())
      verdicts.push_back(read_verdict(output, result, where + ": output '" + output + "'"));
  }
  return pair;
}

}  // namespace

std::vector<SavedComparison> accuracy_from_json(std::string_view text, const std::string& where) {
  const Json json = Json::parse(with_quoted_numbers(text), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail_at(where, "malformed JSON; is the file truncated?");
  if (text_of(member(json, "polygraphy_class", where), where) != "AccuracyResults")
    fail_at(where, "expected AccuracyResults");
  std::vector<SavedComparison> comparisons;
  for (const Json& each : list(member(json, "lst", where), where)) {
    const std::string here = where + ": comparison " + std::to_string(comparisons.size());
    SavedComparison comparison;
    comparison.aggregation = text_of(member(each, "aggregation", here), here);
    for (const Json& pair : list(member(each, "lst", here), here)) comparison.pairs.push_back(read_pair(pair, here));
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

std::vector<SavedComparison> load_accuracy(const std::filesystem::path& path) {
  return accuracy_from_json(read_file(path), "[load] " + path.string());
}

}  // namespace ulpscope
