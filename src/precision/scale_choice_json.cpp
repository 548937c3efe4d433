#include "precision/scale_choice_json.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "compare/base64.h"

namespace ulpscope::json {
namespace {

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
