#include "engine/option_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "core/messages.h"

namespace ulpscope {
namespace {

constexpr std::string_view kFusions[] = {"none", "pointwise", "full"};
constexpr std::string_view kAccumulations[] = {"fp32", "hopper", "hopper-fast"};
constexpr std::string_view kAttentionRules[] = {"normalized", "flash"};

template <typename Enum, std::size_t n>
Enum from_name(const std::string_view (&names)[n], std::string_view name, std::string_view where) {
  const auto* const found = std::ranges::find(names, name);
  if (found != std::end(names)) return static_cast<Enum>(found - std::begin(names));
  throw invalid_argument("{}: expected {} or {}, got '{}'", where, fmt::join(std::span(names).first(n - 1), ", "),
                         names[n - 1], name);
}

}  // namespace

Fusion fusion_from_name(std::string_view name, std::string_view where) {
  return from_name<Fusion>(kFusions, name, where);
}
Accumulation accumulation_from_name(std::string_view name, std::string_view where) {
  return from_name<Accumulation>(kAccumulations, name, where);
}
AttentionRule attention_from_name(std::string_view name, std::string_view where) {
  return from_name<AttentionRule>(kAttentionRules, name, where);
}

std::string_view name_of(Fusion fusion) noexcept { return kFusions[static_cast<std::size_t>(fusion)]; }
std::string_view name_of(Accumulation accumulation) noexcept {
  return kAccumulations[static_cast<std::size_t>(accumulation)];
}
std::string_view name_of(AttentionRule rule) noexcept { return kAttentionRules[static_cast<std::size_t>(rule)]; }

std::vector<std::string> enabled_precisions(const BuildOptions& build) {
  std::vector<std::string> result;
  for (const Precision p : build.enabled.members()) result.emplace_back(name_of(p));
  return result;
}

Precision precision_from_name(std::string_view name, std::string_view where, bool (*accepts)(const LayerForm&)) {
  const auto precision = precision_named(name);
  if (precision && accepts(form_of(*precision))) return *precision;
  throw invalid_argument("{}: expected {}, got '{}'", where, precision_list(" or ", accepts), name);
}

}  // namespace ulpscope
