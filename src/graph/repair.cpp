#include "graph/repair.h"

#include <string_view>
#include <utility>

namespace ulpscope {
namespace {

template <std::size_t... I>
std::vector<Repair> one_of_each(std::index_sequence<I...>) {
  return {{{}, std::variant_alternative_t<I, RepairChange>()}..., {{}, Equalize{.copies = true}}};
}

/// One of each kind, empty.
std::vector<Repair> empty_repairs() {
  return one_of_each(std::make_index_sequence<std::variant_size_v<RepairChange>>());
}

}  // namespace

std::string kind_of(const Repair& repair) {
  const auto* equalize = std::get_if<Equalize>(&repair.change);
  const std::string kind = std::visit([](const auto& change) { return change.kKind; }, repair.change);
  return equalize != nullptr && equalize->copies ? kind + "-copy" : kind;
}

std::vector<std::string> repair_kinds() {
  std::vector<std::string> kinds;
  for (const Repair& each : empty_repairs()) kinds.push_back(kind_of(each));
  return kinds;
}

std::optional<RepairChange> change_of_kind(const std::string& kind) {
  for (const Repair& each : empty_repairs())
    if (kind_of(each) == kind) return each.change;
  return std::nullopt;
}

std::string in_current_spelling(std::string word) {
  constexpr std::string_view kOld = "equalise";
  if (word.starts_with(kOld)) word.replace(0, kOld.size(), Equalize::kKind);
  return word;
}

}  // namespace ulpscope
