#include "precision/answer_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/base64.h"

namespace ulpscope::json {
namespace {

using NetworkLayer = Answer::NetworkLayer;

/// Of float32, subnormals included.
constexpr std::int64_t kSmallestExponent = -149, kLargestExponent = 127;

int to_exponent(const Reader& reader) {
  return reader.integer(kSmallestExponent, kLargestExponent, "the exponent of a float32");
}

void read_inputs(const Reader& reader, std::size_t row, NetworkLayer& layer) {
  reader.each([&](const Reader& each) {
    const std::int64_t last = static_cast<std::int64_t>(row) - 1;
    layer.inputs.push_back(each.integer(0, last, fmt::format("an earlier row, below {}", row)));
  });
}

std::int64_t to_amount(const Reader& reader) {
  return reader.integer<std::int64_t>(0, std::int64_t{1} << 52, "a number of weights or bits");
}

std::string_view bytes_of(const Tensor& tensor) { return {static_cast<const char*>(tensor.raw()), tensor.bytes()}; }

Tensor to_mean_squares(const Reader& reader) {
  const auto bytes = decode_base64(reader.text());
  if (!bytes || bytes->empty() || bytes->size() % sizeof(float) != 0) reader.fail("float32 numbers in base64");
  Tensor result(DataType::kFloat32, {static_cast<std::int64_t>(bytes->size() / sizeof(float))});
  std::memcpy(result.data<float>(), bytes->data(), bytes->size());
  for (const float square : result.values<float>())
    if (!(square >= 0) || std::isinf(square)) reader.fail("mean squares of 0 and more");
  return result;
}

}  // namespace

Json from_network(const Answer& answer, TrialCoder& coder) {
  if (answer.network.empty()) return {};
  Json layers = Json::array(), ops = Json::array(), precisions = Json::array(), inputs = Json::array();
  Json magnitudes = Json::array(), times = Json::object();
  std::set<Precision> timed;
  for (const NetworkLayer& each : answer.network)
    for (const auto& [precision, time] : each.time_us) timed.insert(precision);
  for (const NetworkLayer& each : answer.network) {
    layers.push_back(coder.number_of(each.name));
    ops.push_back(each.op);
    precisions.push_back(each.low ? Json(name_of(*each.low)) : Json());
    inputs.push_back(each.inputs);
    magnitudes.push_back(each.magnitudes ? Json{each.magnitudes->smallest, each.magnitudes->largest} : Json());
    for (const Precision precision : timed) {
      const auto time = each.time_us.find(precision);
      times[std::string(name_of(precision))].push_back(time != each.time_us.end() ? from_double(time->second) : Json());
    }
  }
  return {{"layer", std::move(layers)},  {"op", std::move(ops)},        {"precision", std::move(precisions)},
          {"inputs", std::move(inputs)}, {"time_us", std::move(times)}, {"magnitudes", std::move(magnitudes)}};
}

void read_network(const Reader& reader, const TrialCoder& coder, Answer& answer) {
  if (reader.is_null()) return;
  auto& rows = answer.network;
  for (const std::string& name : coder.read_layers(reader.at("layer"))) rows.push_back({name, ""});
  each_row(reader.at("op"), rows, [](NetworkLayer& row, const Reader& value) { row.op = value.text(); });
  each_row(reader.at("precision"), rows, [](NetworkLayer& row, const Reader& value) {
    if (!value.is_null()) row.low = to_precision(value);
  });
  each_row(reader.at("inputs"), rows, [&](NetworkLayer& row, const Reader& value) {
    read_inputs(value, static_cast<std::size_t>(&row - rows.data()), row);
  });
  each_row(reader.at("magnitudes"), rows, [](NetworkLayer& row, const Reader& value) {
    if (value.is_null()) return;
    std::vector<int> range;
    value.each([&](const Reader& each) { range.push_back(to_exponent(each)); });
    if (range.size() != 2 || range[0] > range[1]) value.fail("the smallest exponent and the largest");
    row.magnitudes = Answer::Magnitudes{range[0], range[1]};
  });
  reader.at("time_us").members([&](const std::string& name, const Reader& column) {
    const auto precision = precision_named(name);
    if (!precision) column.fail("a precision as its key");
    each_row(column, rows, [&](NetworkLayer& row, const Reader& value) {
      if (!value.is_null()) row.time_us[*precision] = value.real();
    });
  });
}

Json from_bits(const Answer& answer) {
  if (!answer.bits) return {};
  const Answer::Bits& bits = *answer.bits;
  Json layers = Json::array(), curve = Json::array();
  for (const Answer::Bits::Layer& each : bits.layers)
    layers.push_back({{"name", each.name},
                      {"format", name_of(each.format)},
                      {"block", each.block == 0 ? Json() : Json(each.block)},
                      {"weights", each.weights},
                      {"bits", each.bits},
                      {"bytes", (each.bits + 7) / 8}});
  for (const Answer::Bits::Point& point : bits.curve)
    curve.push_back({from_double(point.bits), from_double(point.used)});
  return {{"budget", bits.budget > 0 ? from_double(bits.budget) : Json()},
          {"tolerance", bits.has_tolerance},
          {"per_weight", from_double(bits.per_weight())},
          {"weights", bits.weights()},
          {"bytes", (bits.bits() + 7) / 8},
          {"layers", std::move(layers)},
          {"curve", std::move(curve)}};
}

void read_bits(const Reader& reader, Answer& answer) {
  if (!reader.has("bits") || reader.at("bits").is_null()) return;
  const Reader from = reader.at("bits");
  Answer::Bits& bits = answer.bits.emplace();
  if (const Reader budget = from.at("budget"); !budget.is_null()) bits.budget = budget.real();
  bits.has_tolerance = from.at("tolerance").boolean();
  from.at("layers").each([&](const Reader& each) {
    Answer::Bits::Layer& layer = bits.layers.emplace_back();
    layer.name = each.at("name").text();
    layer.format = to_precision(each.at("format"));
    if (const Reader block = each.at("block"); !block.is_null()) layer.block = to_amount(block);
    layer.weights = to_amount(each.at("weights"));
    layer.bits = to_amount(each.at("bits"));
  });
  from.at("curve").each([&](const Reader& each) {
    const std::vector<double> values = to_reals(each, 2, "bits per weight and share of the tolerance");
    bits.curve.push_back({values[0], values[1]});
  });
}

Json from_scale_choice(const AnswerFile& file) {
  if (file.weight_scales.empty() && file.mx_scale_rule.empty()) return {};
  // Layers that read the same have the same numbers.
  std::vector<std::pair<std::string_view, std::vector<std::string>>> groups;
  std::map<std::string_view, std::size_t> places;
  for (const auto& [layer, squares] : file.mean_squares) {
    const auto [found, is_new] = places.emplace(bytes_of(squares), groups.size());
    if (is_new) groups.emplace_back(found->first, std::vector<std::string>());
    groups[found->second].second.push_back(layer);
  }
  Json squares = Json::array();
  for (const auto& [bytes, layers] : groups) squares.push_back({{"layers", layers}, {"float32", encode_base64(bytes)}});
  return {{"weight_scales", file.weight_scales.empty() ? Json() : Json(file.weight_scales)},
          {"mx_scale_rule", file.mx_scale_rule.empty() ? Json() : Json(file.mx_scale_rule)},
          {"mean_squares", std::move(squares)}};
}

void read_scale_choice(const Reader& reader, AnswerFile& file) {
  if (reader.is_null()) return;
  static constexpr std::array<std::string_view, 3> kWeightScales{"amax", "least-squares", "activations"};
  static constexpr std::array<std::string_view, 2> kRules{"ceil", "ocp"};
  if (const Reader scales = reader.at("weight_scales"); !scales.is_null())
    file.weight_scales = kWeightScales.at(to_place(scales, kWeightScales));
  if (const Reader rule = reader.at("mx_scale_rule"); !rule.is_null())
    file.mx_scale_rule = kRules.at(to_place(rule, kRules));
  reader.at("mean_squares").each([&](const Reader& each) {
    const Tensor squares = to_mean_squares(each.at("float32"));
    for (const std::string& layer : to_texts(each.at("layers"))) file.mean_squares.emplace(layer, squares);
  });
}

}  // namespace ulpscope::json
