#include "precision/network_json.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

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

}  // namespace ulpscope::json
