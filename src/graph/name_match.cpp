#include "graph/name_match.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "core/messages.h"
#include "core/text.h"

namespace ulpscope {
namespace {

/// Insertions, deletions and replacements between two texts; gives up at `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() >= limit) return limit;
  std::vector<std::size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t j = 1; j <= b.size(); ++j) {
    std::size_t diagonal = row[0];
    row[0] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[i];
      row[i] = std::min({replaced, row[i] + 1, row[i - 1] + 1});
    }
  }
  return std::min(row[a.size()], limit);
}

}  // namespace

bool is_name_pattern(std::string_view name) noexcept { return name.find_first_of("*?[") != std::string_view::npos; }

bool matches_name_pattern(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

std::vector<std::string> similar_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t count) {
  const std::string wanted = lower_case(name.substr(0, 256));
  std::vector<std::pair<std::size_t, const std::string*>> scored;
  for (const std::string& candidate : candidates) {
    const std::string other = lower_case(std::string_view(candidate).substr(0, 256));
    const std::size_t length = std::max(wanted.size(), other.size());
    const std::size_t limit = std::min(std::max<std::size_t>(1, length / 3) + 1, length);
    const std::size_t distance = edit_distance(wanted, other, limit);
    const bool contained = wanted.size() >= 3 && (other.find(wanted) != std::string::npos ||
                                                  (other.size() >= 3 && wanted.find(other) != std::string::npos));
    if (distance < limit || contained) scored.emplace_back(distance, &candidate);
  }
  std::ranges::stable_sort(scored, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (const auto& [distance, candidate] : scored) {
    if (result.size() == count) break;
    result.push_back(*candidate);
  }
  return result;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  std::string text;
  for (const auto& similar : similar_names(name, candidates))
    text += fmt::format("{}'{}'", text.empty() ? "; did you mean " : ", ", similar);
  return text.empty() ? text : text + "?";
}

std::vector<std::string> expand_names(std::span<const std::string> names, std::span<const std::string> candidates,
                                      const std::string& where) {
  const std::unordered_set<std::string_view> known(candidates.begin(), candidates.end());
  std::unordered_set<std::string> selected;
  std::vector<std::string> result;
  const auto select = [&](const std::string& name) {
    if (selected.insert(name).second) result.push_back(name);
  };
  for (const std::string& name : names) {
    if (known.contains(name)) {
      select(name);
    } else if (is_name_pattern(name)) {
      bool any = false;
      for (const std::string& candidate : candidates) {
        if (!matches_name_pattern(candidate, name)) continue;
        any = true;
        select(candidate);
      }
      if (!any) log_warning("{}: no tensor matches the pattern '{}'", where, name);
    } else {
      throw invalid_argument("{}: there is no tensor '{}'{}", where, name, did_you_mean(name, candidates));
    }
  }
  return result;
}

}  // namespace ulpscope
