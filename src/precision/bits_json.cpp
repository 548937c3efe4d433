#include "precision/bits_json.h"

namespace ulpscope::json {
namespace {

std::int64_t to_amount(const Reader& reader) {
  return reader.integer<std::int64_t>(0, std::int64_t{1} << 52, "a number of weights or bits");
}

}  // namespace

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

}  // namespace ulpscope::json
