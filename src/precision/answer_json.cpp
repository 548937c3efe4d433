#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <string_view>
#include <unordered_map>

#include "core/file.h"
#include "core/messages.h"
#include "precision/answer_parts.h"
#include "precision/build_record.h"
#include "precision/lowest.h"
#include "precision/objective.h"
#include "precision/trial_json.h"
#include "ulpscope/answer.h"

namespace ulpscope {
namespace {

using json::from_double;
using json::Json;
using json::Reader;

/// Beyond those of float64.
constexpr std::int64_t kMostExponents = 1100;
constexpr char kAnswerFormat[] = "ulpscope-answer";
constexpr std::array<std::string_view, 4> kVerdicts = {"found", "not-reachable", "unverified", "fails-held-out"};
constexpr std::array<std::string_view, 10> kReasons = {"overflow",   "underflow", "cancellation", "saturation",
                                                       "resolution", "rounding",  "measured",     "requested",
                                                       "singular",   "faster"};

Json from_field(double value) { return from_double(value); }
Json from_field(Precision value) { return name_of(value); }
Json from_field(ReasonKind value) { return name_of(value); }
template <typename Value>
Json from_field(const Value& value) {
  return value;
}

void to_field(const Reader& reader, double& value) { value = reader.real(); }
void to_field(const Reader& reader, std::int64_t& value) { value = reader.integer(); }
void to_field(const Reader& reader, std::string& value) { value = reader.text(); }
void to_field(const Reader& reader, std::vector<std::string>& value) { value = json::to_texts(reader); }
void to_field(const Reader& reader, Precision& value) { value = json::to_precision(reader); }
void to_field(const Reader& reader, ReasonKind& value) { value = json::to_enum<ReasonKind>(reader, kReasons); }

/// Calls `visit(key, value)` for each field, for those who write and those who read.
template <typename Layer, typename Visit>
void visit_fields(Layer& layer, const Visit& visit) {
  visit("name", layer.name);
  visit("nodes", layer.nodes);
  visit("op", layer.op);
  visit("precision", layer.precision);
  visit("effect", layer.effect);
}
template <typename AnyReason, typename Visit>
void visit_reason(AnyReason& reason, const Visit& visit) {
  visit("kind", reason.kind);
  visit("tensor", reason.tensor);
  visit("count", reason.count);
  visit("total", reason.total);
  visit("largest", reason.largest);
  visit("share", reason.share);
  visit("text", reason.text);
}

auto writer_to(Json& json) {
  return [&json](const char* key, const auto& value) { json[key] = from_field(value); };
}
auto reader_of(const Reader& reader) {
  return [&reader](const char* key, auto& value) { to_field(reader.at(key), value); };
}

Json from_layer(const KeptLayer& layer) {
  const Reason& reason = layer.reason;
  Json result, why;
  visit_fields(layer, writer_to(result));
  visit_reason(reason, writer_to(why));
  why["low"] = reason.low ? Json(name_of(*reason.low)) : Json();
  why["exponents"] =
      reason.exponents.empty() ? Json() : Json{{"first", reason.first_exponent}, {"counts", reason.exponents}};
  result["reason"] = std::move(why);
  return result;
}

/// Files of earlier releases do not have them.
void read_exponents(const Reader& reader, Reason& reason) {
  if (reader.has("low"))
    if (const Reader low = reader.at("low"); !low.is_null()) reason.low = json::to_precision(low);
  if (!reader.has("exponents")) return;
  const Reader exponents = reader.at("exponents");
  if (exponents.is_null()) return;
  reason.first_exponent = exponents.at("first").integer(-kMostExponents, kMostExponents, "the exponent of a number");
  exponents.at("counts").each([&](const Reader& each) {
    const std::int64_t count = each.integer();
    if (count < 0) each.fail("a count");
    if (std::ssize(reason.exponents) > 2 * kMostExponents) each.fail("fewer exponents");
    reason.exponents.push_back(count);
  });
}

KeptLayer to_layer(const Reader& reader) {
  KeptLayer layer;
  visit_fields(layer, reader_of(reader));
  const Reader reason = reader.at("reason");
  visit_reason(layer.reason, reader_of(reason));
  read_exponents(reason, layer.reason);
  return layer;
}

/// The names of layers that the rest of the file numbers, in the network's order.
std::vector<std::string> layer_names(const Answer& answer) {
  std::list<std::string_view> names;
  std::unordered_map<std::string_view, std::list<std::string_view>::iterator> places;
  /// Each behind the one before it in the same table.
  auto next = names.begin();
  const auto visit = [&](std::string_view name, bool used) {
    auto place = places.find(name);
    if (place == places.end() && !used) return;
    if (place == places.end()) place = places.emplace(name, names.insert(next, name)).first;
    next = std::next(place->second);
  };
  for (const Answer::Sensitivity& each : answer.sensitivities) visit(each.name, true);
  std::map<RaisedLayers::Table, RaisedLayers::Marks> tables;
  std::vector<RaisedLayers::Table> order;
  for (const Trial& trial : answer.trials) {
    if (trial.raised.empty()) continue;
    const auto [entry, is_new] = tables.try_emplace(trial.raised.table());
    if (is_new) order.push_back(entry->first);
    const RaisedLayers::Marks& marks = trial.raised.marks();
    RaisedLayers::Marks& used = entry->second;
    used.resize(std::max(used.size(), marks.size()), 0);
    for (std::size_t i = 0; i < marks.size(); ++i) used[i] |= marks[i];
  }
  for (const RaisedLayers::Table& table : order) {
    next = names.begin();
    const RaisedLayers::Marks& used = tables[table];
    for (std::size_t i = 0; i < used.size(); ++i) visit((*table)[i], used[i] != 0);
  }
  // Behind the others, so that neighbors among those that trials raise keep neighboring numbers.
  next = names.end();
  for (const Answer::NetworkLayer& each : answer.network)
    if (!places.contains(each.name)) places.emplace(each.name, names.insert(next, each.name));
  return {names.begin(), names.end()};
}

/// In columns, since there may be thousands.
Json from_sensitivities(const Answer& answer, json::TrialCoder& coder) {
  Json layers = Json::array(), ops = Json::array(), effects = Json::array(), measured = Json::array();
  for (const Answer::Sensitivity& each : answer.sensitivities) {
    if (each.measured) measured.push_back(layers.size());
    layers.push_back(coder.number_of(each.name));
    ops.push_back(each.op);
    effects.push_back(from_double(each.effect));
  }
  return {{"layer", std::move(layers)},
          {"op", std::move(ops)},
          {"effect", std::move(effects)},
          {"measured", std::move(measured)}};
}

void read_sensitivities(const Reader& reader, const json::TrialCoder& coder, Answer& answer) {
  auto& rows = answer.sensitivities;
  for (const std::string& name : coder.read_layers(reader.at("layer"))) rows.push_back({name, "", 0, false});
  json::each_row(reader.at("op"), rows, [](auto& row, const Reader& value) { row.op = value.text(); });
  json::each_row(reader.at("effect"), rows, [](auto& row, const Reader& value) { row.effect = value.real(); });
  reader.at("measured").each([&](const Reader& each) {
    const std::string expected = fmt::format("a row, below {}", rows.size());
    rows[each.integer<std::size_t>(0, std::ssize(rows) - 1, expected)].measured = true;
  });
}

Json from_times(const Answer& answer) {
  Json time = {{"answer", from_double(answer.time_us)},
               {"lowest", from_double(answer.time_low_us)},
               {"highest", from_double(answer.time_high_us)}};
  if (answer.casts) {
    time["casts"] = from_double(answer.casts->time_us);
    time["cast_count"] = answer.casts->count;
  }
  return time;
}

Json from_int8(const AnswerFile& file) {
  if (file.scales.empty() && file.calibration_cache.empty()) return {};
  Json scales = Json::object();
  for (const auto& [name, scale] : file.scales) scales[name] = from_double(static_cast<double>(scale));
  return {{"calibration_cache", file.calibration_cache}, {"scales", std::move(scales)}};
}

Json from_answer(const AnswerFile& file) {
  const Answer& answer = file.answer;
  Json layers = Json::array(), repairs = Json::array(), trials = Json::array();
  for (const KeptLayer& layer : answer.kept) layers.push_back(from_layer(layer));
  for (const Repair& repair : answer.repairs) repairs.push_back(json::from_repair(repair));
  const std::vector<std::string> names = layer_names(answer);
  json::TrialCoder coder(names);
  Json sensitivities = from_sensitivities(answer, coder), network = json::from_network(answer, coder);
  // Names of outputs come with the first trials that have them.
  for (const Trial& trial : answer.trials) trials.push_back(coder.write(trial));
  Json sets = Json::object(), curve = Json::array();
  for (const Answer::ProvenSet& each : answer.sets) sets[std::string(name_of(each.objective))] = each.trial;
  for (const Answer::CurvePoint& point : answer.curve)
    curve.push_back({from_double(point.time_us), from_double(point.used), point.raised});
  Json search = json::from_judgement(answer.search);
  search["samples"] = answer.search_samples;
  Json held_out;
  if (answer.held_out) {
    held_out = json::from_judgement(*answer.held_out);
    held_out["samples"] = answer.held_out_samples;
    held_out["passed"] = answer.held_out_passed;
  }
  Json model = {{"path", file.model}, {"hash", file.model_hash}};
  if (!file.external_hash.empty()) model["external_data_hash"] = file.external_hash;
  return {{"format", kAnswerFormat},
          {"version", kAnswerVersion},
          {"program", file.program},
          {"model", std::move(model)},
          {"precisions", file.precisions},
          {"fusion", file.fusion},
          {"accumulation", file.accumulation},
          {"attention", file.attention},
          {"objective", answer.objective ? Json(name_of(*answer.objective)) : Json()},
          {"verdict", name_of(answer.verdict)},
          {"message", answer.message},
          {"lowest", json::from_lowest(file)},
          {"layers", std::move(layers)},
          {"following", answer.following},
          {"repairs", std::move(repairs)},
          {"run_options", run_options(file)},
          {"build", json::from_build(file.build)},
          {"criterion", answer.criterion},
          {"criterion_options", file.criterion_options},
          {"inputs", file.inputs},
          {"input_shapes", answer.input_shapes},
          {"golden", file.golden},
          {"margin", from_double(answer.margin)},
          {"search", std::move(search)},
          {"held_out", std::move(held_out)},
          {"joined_samples", answer.joined_samples},
          {"validation_samples", answer.validation_samples},
          {"candidates", answer.candidates},
          {"cost_share", from_double(answer.cost_share)},
          {"target", answer.target},
          {"target_hash", answer.target_hash.empty() ? Json() : Json(answer.target_hash)},
          {"time_us", from_times(answer)},
          {"bits", json::from_bits(answer)},
          {"evaluations", answer.evaluations},
          {"held_out_evaluations", answer.held_out_evaluations},
          {"seconds", from_double(answer.seconds)},
          {"int8", from_int8(file)},
          {"block_scales", json::from_scale_choice(file)},
          {"names", names},
          {"sensitivities", std::move(sensitivities)},
          {"network", std::move(network)},
          {"trials", std::move(trials)},
          {"sets", std::move(sets)},
          {"curve", std::move(curve)}};
}

/// Files of earlier releases do not have them. The trials have been read.
void read_sets(const Reader& reader, Answer& answer) {
  if (reader.has("sets"))
    for (const ObjectiveRule& rule : objective_rules()) {
      const Reader sets = reader.at("sets");
      const char* name = rule.name.data();
      if (!sets.has(name)) continue;
      const int trial = json::to_count(sets.at(name));
      if (trial >= std::ssize(answer.trials)) sets.at(name).fail("the number of a trial");
      answer.sets.push_back({rule.objective, trial});
    }
  if (reader.has("curve"))
    reader.at("curve").each([&](const Reader& each) {
      constexpr char kExpected[] = "time, share of the tolerance and layers";
      const std::vector<double> values = json::to_reals(each, 3, kExpected);
      if (!(values[2] >= 0 && values[2] < 1e9)) each.fail(kExpected);
      answer.curve.push_back({values[0], values[1], static_cast<int>(values[2])});
    });
}

void read_int8(const Reader& int8, AnswerFile& file) {
  if (int8.is_null()) return;
  file.calibration_cache = int8.at("calibration_cache").text();
  int8.at("scales").members([&](const std::string& name, const Reader& scale) {
    const double value = scale.real();
    if (!(value > 0 && value <= std::numeric_limits<float>::max())) scale.fail("a positive float32");
    file.scales[name] = static_cast<float>(value);
  });
}

void read_objective(const Reader& reader, Answer& answer) {
  answer.objective = objective_named(reader.text());
  if (!answer.objective) reader.fail(fmt::format("one of {}", fmt::join(objective_names(), ", ")));
}

void read_figures(const Reader& reader, Answer& answer) {
  answer.criterion = reader.at("criterion").text();
  answer.margin = reader.at("margin").real();
  answer.search = json::to_judgement(reader.at("search"));
  answer.search_samples = json::to_count(reader.at("search").at("samples"));
  if (const Reader held_out = reader.at("held_out"); !held_out.is_null()) {
    answer.held_out = json::to_judgement(held_out);
    answer.held_out_samples = json::to_count(held_out.at("samples"));
    answer.held_out_passed = json::to_count(held_out.at("passed"));
  }
  if (reader.has("joined_samples")) answer.joined_samples = json::to_count(reader.at("joined_samples"));
  if (reader.has("validation_samples")) answer.validation_samples = json::to_count(reader.at("validation_samples"));
  answer.candidates = json::to_count(reader.at("candidates"));
  answer.cost_share = reader.at("cost_share").real();
  answer.target = reader.at("target").text();
  if (reader.has("target_hash") && !reader.at("target_hash").is_null())
    answer.target_hash = reader.at("target_hash").text();
  const Reader time = reader.at("time_us");
  answer.time_us = time.at("answer").real();
  answer.time_low_us = time.at("lowest").real();
  answer.time_high_us = time.at("highest").real();
  if (time.has("casts")) answer.casts = Answer::Casts{json::to_count(time.at("cast_count")), time.at("casts").real()};
  answer.evaluations = reader.at("evaluations").integer();
  answer.held_out_evaluations = reader.at("held_out_evaluations").integer();
  answer.seconds = reader.at("seconds").real();
}

}  // namespace

std::string_view name_of(Answer::Verdict verdict) noexcept { return kVerdicts[static_cast<std::size_t>(verdict)]; }
std::string_view name_of(ReasonKind kind) noexcept { return kReasons[static_cast<std::size_t>(kind)]; }

/// A line for each key, and one for each element of what is a list or an object.
std::string answer_to_json(const AnswerFile& file) {
  const auto dump = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  const Json document = from_answer(file);
  std::string text = "{";
  const char* comma = "\n ";
  for (const auto& [key, value] : document.items()) {
    text += comma + dump(key) + ": ";
    comma = ",\n ";
    if (!value.is_structured() || value.empty()) {
      text += dump(value);
      continue;
    }
    text += value.is_array() ? "[" : "{";
    const char* inner = "\n  ";
    for (const auto& [name, element] : value.items()) {
      text += inner + (value.is_array() ? "" : dump(name) + ": ") + dump(element);
      inner = ",\n  ";
    }
    text += value.is_array() ? "\n ]" : "\n }";
  }
  return text + "\n}\n";
}

AnswerFile answer_from_json(std::string_view text, const std::string& where) {
  Json document;
  if (!json::parse(text, document))
    throw invalid_file(where + ": expected JSON; is the file damaged, or no answer of `ulpscope precision search`?");
  const Reader reader(document, where);
  if (!reader.has("format") || !reader.has("version") || reader.at("format").text() != kAnswerFormat)
    throw invalid_file("{}: expected an answer of `ulpscope precision search` (\"format\": \"{}\"), got other JSON",
                       where, kAnswerFormat);
  const std::int64_t version = reader.at("version").integer();
  if (version < 1 || version > kAnswerVersion)
    throw invalid_file("{}: expected version 1 to {} of the format, got {}; try searching again with this release",
                       where, kAnswerVersion, version);
  AnswerFile file;
  file.program = reader.at("program").text();
  file.model = reader.at("model").at("path").text();
  file.model_hash = reader.at("model").at("hash").text();
  if (reader.at("model").has("external_data_hash"))
    file.external_hash = reader.at("model").at("external_data_hash").text();
  file.precisions = json::to_texts(reader.at("precisions"));
  reader.at("precisions").each([](const Reader& each) {
    if (!precision_named(each.text())) each.fail("the name of a precision, such as \"fp16\" or \"nvfp4-weights\"");
  });
  file.fusion = reader.at("fusion").text();
  // Earlier releases did not write these.
  if (reader.has("accumulation")) file.accumulation = reader.at("accumulation").text();
  if (reader.has("attention")) file.attention = reader.at("attention").text();
  if (reader.has("criterion_options")) file.criterion_options = json::to_texts(reader.at("criterion_options"));
  if (reader.has("inputs")) file.inputs = json::to_texts(reader.at("inputs"));
  if (reader.has("input_shapes"))
    reader.at("input_shapes").members([&](const std::string& name, const Reader& shape) {
      shape.each([&](const Reader& size) { file.answer.input_shapes[name].push_back(json::to_count(size)); });
    });
  if (reader.has("golden")) file.golden = reader.at("golden").text();
  Answer& answer = file.answer;
  if (reader.has("objective") && !reader.at("objective").is_null()) read_objective(reader.at("objective"), answer);
  answer.verdict = json::to_enum<Answer::Verdict>(reader.at("verdict"), kVerdicts);
  answer.message = reader.at("message").text();
  reader.at("layers").each([&](const Reader& each) { answer.kept.push_back(to_layer(each)); });
  answer.following = json::to_texts(reader.at("following"));
  reader.at("repairs").each([&](const Reader& each) { answer.repairs.push_back(json::to_repair(each)); });
  read_figures(reader, answer);
  json::read_lowest(reader, answer);
  json::read_bits(reader, answer);
  read_int8(reader.at("int8"), file);
  if (reader.has("block_scales")) json::read_scale_choice(reader.at("block_scales"), file);
  file.build = reader.has("build") ? json::to_build(reader.at("build"))
                                   : build_of_words(file, json::to_texts(reader.at("run_options")));
  json::TrialCoder coder;
  if (version == 1) {
    reader.at("sensitivities").each([&](const Reader& each) {
      answer.sensitivities.push_back(
          {each.at("name").text(), each.at("op").text(), each.at("effect").real(), each.at("measured").boolean()});
      coder.number_of(answer.sensitivities.back().name);
    });
  } else {
    coder.read_names(reader.at("names"));
    read_sensitivities(reader.at("sensitivities"), coder, answer);
    if (reader.has("network")) json::read_network(reader.at("network"), coder, answer);
  }
  reader.at("trials").each([&](const Reader& each) {
    answer.trials.push_back(version == 1 ? coder.read_version_1(each) : coder.read(each));
  });
  read_sets(reader, answer);
  return file;
}

void write_answer(const std::filesystem::path& path, const AnswerFile& file) { write_file(path, answer_to_json(file)); }

AnswerFile read_answer(const std::filesystem::path& path) {
  AnswerFile file = answer_from_json(read_file(path), fmt::format("[answer] '{}'", path.string()));
  file.path = path;
  return file;
}

}  // namespace ulpscope
