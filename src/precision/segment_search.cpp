#include "precision/segment_search.h"

#include <algorithm>
#include <utility>

namespace ulpscope {

std::vector<char> search_segments(std::size_t num_layers, std::size_t budget,
                                  const std::function<bool(const std::vector<char>&)>& right) {
  std::vector<char> raised(num_layers, 1);
  std::vector<std::pair<std::size_t, std::size_t>> open;
  if (num_layers > 0) open.emplace_back(0, num_layers);
  for (; !open.empty() && budget > 0; --budget) {
    const auto largest = std::ranges::max_element(open, {}, [](const auto& s) { return s.second - s.first; });
    const auto [begin, end] = *largest;
    open.erase(largest);
    std::vector<char> lowered = raised;
    std::fill(lowered.begin() + static_cast<std::ptrdiff_t>(begin), lowered.begin() + static_cast<std::ptrdiff_t>(end),
              0);
    if (right(lowered)) {
      raised = std::move(lowered);
    } else if (end - begin > 1) {
      const std::size_t middle = begin + (end - begin) / 2;
      open.emplace_back(begin, middle);
      open.emplace_back(middle, end);
    }
  }
  return raised;
}

}  // namespace ulpscope
