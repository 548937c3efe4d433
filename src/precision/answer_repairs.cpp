// Repairs in the file of an answer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <string_view>

#include "graph/repair.h"
#include "precision/answer_parts.h"
#include "ulpscope/answer.h"

namespace ulpscope {
namespace {

using json::from_double;
using json::Json;
using json::Reader;

/// Beyond those of float64.
constexpr double kMostExponent = 1100;
constexpr std::array<std::string_view, 5> kScaleEdits = {"constant", "shared-constant", "insertion", "epsilon",
                                                         "int8-scale"};

Json from_change(double value) { return from_double(value); }
Json from_change(const std::vector<std::int8_t>& exponents) { return exponents; }
Json from_change(const std::vector<ScaleEdit>& edits) {
  Json result = Json::array();
  for (const ScaleEdit& edit : edits)
    result.push_back(
        {{"kind", name_of(edit.kind)}, {"name", edit.name}, {"input", edit.input}, {"exponent", edit.exponent}});
  return result;
}

ScaleEdit to_edit(const Reader& reader) {
  ScaleEdit edit;
  edit.kind = json::to_enum<ScaleEdit::Kind>(reader.at("kind"), kScaleEdits);
  edit.name = reader.at("name").text();
  const auto within = [&](const char* key, std::int64_t least, std::int64_t most) {
    return reader.at(key).integer(least, most, fmt::format("a number from {} to {}", least, most));
  };
  edit.input = within("input", 0, 1 << 20);
  edit.exponent = within("exponent", -64, 64);
  return edit;
}

void to_change(const Reader& reader, double& value) { value = reader.real(); }
void to_change(const Reader& reader, int& exponent) {
  const double value = reader.real();
  if (!(std::abs(value) <= kMostExponent)) reader.fail("an exponent of 2");
  exponent = static_cast<int>(value);
}
void to_change(const Reader& reader, std::vector<std::int8_t>& exponents) {
  reader.each(
      [&](const Reader& each) { exponents.push_back(each.integer<std::int8_t>(0, 127, "an exponent of 0 to 127")); });
}
void to_change(const Reader& reader, std::vector<ScaleEdit>& edits) {
  reader.each([&](const Reader& each) { edits.push_back(to_edit(each)); });
}

}  // namespace

std::string_view name_of(ScaleEdit::Kind kind) noexcept { return kScaleEdits[static_cast<std::size_t>(kind)]; }

namespace json {

Json from_repair(const Repair& repair) {
  Json result = {{"kind", kind_of(repair)}, {"name", repair.name}, {"limit", from_double(0)}, {"text", repair.text}};
  if (!std::isnan(repair.used_after))
    result["used"] = {from_double(repair.used_before), from_double(repair.used_after)};
  std::visit(
      [&](const auto& change) {
        change.visit(change, [&](const char* key, const auto& value) { result[key] = from_change(value); });
      },
      repair.change);
  return result;
}

Repair to_repair(const Reader& reader) {
  auto change = change_of_kind(in_current_spelling(reader.at("kind").text()));
  if (!change) reader.at("kind").fail(fmt::format("one of {}", fmt::join(repair_kinds(), ", ")));
  std::visit(
      [&](auto& each) { each.visit(each, [&](const char* key, auto& value) { to_change(reader.at(key), value); }); },
      *change);
  Repair repair{reader.at("name").text(), std::move(*change), reader.at("text").text()};
  if (reader.has("used")) {
    const auto used = to_reals(reader.at("used"), 2, "two shares of the tolerance, before and after");
    repair.used_before = used[0];
    repair.used_after = used[1];
  }
  return repair;
}

}  // namespace json

}  // namespace ulpscope
