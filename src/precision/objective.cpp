#include "precision/objective.h"

#include <algorithm>
#include <array>

#include "precision/search_phases.h"

namespace ulpscope {
namespace {

double time_of(SearchSpace& space, const Levels& levels) { return space.time_us(levels); }
double work_share_of(SearchSpace& space, const Levels& levels) { return space.cost_share(levels); }

double bits_of(SearchSpace& space, const Levels& levels) { return static_cast<double>(total_bits(space, levels)); }

constexpr std::array<ObjectiveRule, 5> kRules = {{
    {.objective = Objective::kFastest,
     .name = "fastest",
     .wish = "the least time",
     .help = "the least time on the target (--target), which may be to stay in higher precision",
     .amount = time_of,
     .find = find_fastest,
     .may_stay_high = true},
    {.objective = Objective::kSmallest,
     .name = "smallest",
     .wish = "the fewest layers",
     .help = "few layers",
     .amount = nullptr,
     .find = find_few},
    {.objective = Objective::kCheapest,
     .name = "cheapest",
     .wish = "the fewest multiply-adds",
     .help = "few multiply-adds in higher precision",
     .amount = work_share_of,
     .find = find_few,
     .counts_work = true},
    {.objective = Objective::kBits,
     .name = "bits",
     .wish = "the fewest bits per weight",
     .help = "the fewest bits of constant weights (--weights-only)",
     .amount = bits_of,
     .find = find_fewest_bits,
     .of_formats = true},
    {.objective = Objective::kError,
     .name = "error",
     .wish = "the least error at a budget of bits",
     .help = "the least error with the bits that --bits allows",
     .amount = nullptr,
     .find = find_least_error,
     .of_formats = true},
}};

}  // namespace

std::span<const ObjectiveRule> objective_rules() noexcept { return kRules; }
const ObjectiveRule& rule_of(Objective objective) noexcept { return kRules[static_cast<std::size_t>(objective)]; }
std::string_view name_of(Objective objective) noexcept { return rule_of(objective).name; }

std::vector<std::string> objective_names() {
  std::vector<std::string> names;
  for (const ObjectiveRule& rule : kRules) names.emplace_back(rule.name);
  return names;
}

std::optional<Objective> objective_named(std::string_view name) noexcept {
  const auto found = std::ranges::find(kRules, name, &ObjectiveRule::name);
  return found == kRules.end() ? std::nullopt : std::optional(found->objective);
}

}  // namespace ulpscope
