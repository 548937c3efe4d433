#include "engine/option_names.h"

#include "core/messages.h"

namespace ulpscope {
namespace {

constexpr std::string_view kFusions[] = {"none", "pointwise", "full"};
constexpr std::string_view kAccumulations[] = {"fp32", "hopper", "hopper-fast"};
constexpr std::string_view kAttentionRules[] = {"normalized", "flash"};

}  // namespace

Fusion fusion_from_name(std::string_view name, std::string_view where) {
  for (std::size_t i = 0; i < std::size(kFusions); ++i)
    if (kFusions[i] == name) return static_cast<Fusion>(i);
  throw invalid_argument("{}: expected none, pointwise or full, got '{}'", where, name);
}

Accumulation accumulation_from_name(std::string_view name, std::string_view where) {
  for (std::size_t i = 0; i < std::size(kAccumulations); ++i)
    if (kAccumulations[i] == name) return static_cast<Accumulation>(i);
  throw invalid_argument("{}: expected fp32, hopper or hopper-fast, got '{}'", where, name);
}

std::string_view name_of(Accumulation accumulation) noexcept {
  return kAccumulations[static_cast<std::size_t>(accumulation)];
}

AttentionRule attention_from_name(std::string_view name, std::string_view where) {
  for (std::size_t i = 0; i < std::size(kAttentionRules); ++i)
    if (kAttentionRules[i] == name) return static_cast<AttentionRule>(i);
  throw invalid_argument("{}: expected normalized or flash, got '{}'", where, name);
}

std::string_view name_of(AttentionRule rule) noexcept { return kAttentionRules[static_cast<std::size_t>(rule)]; }

std::string_view name_of(Fusion fusion) noexcept { return kFusions[static_cast<std::size_t>(fusion)]; }

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
