#include "backend/arena.h"

#include <algorithm>

namespace ulpscope {

std::size_t place_in_arena(std::vector<ArenaEntry>& entries, std::size_t alignment) {
  const auto size_of_entry = [&](const ArenaEntry& entry) {
    return (std::max<std::size_t>(entry.bytes, 1) + alignment - 1) / alignment * alignment;
  };
  std::vector<ArenaEntry*> order, placed;  // `placed` by offset.
  for (ArenaEntry& entry : entries)
    if (entry.first >= 0) order.push_back(&entry);
  std::ranges::stable_sort(
      order, [&](const ArenaEntry* a, const ArenaEntry* b) { return size_of_entry(*a) > size_of_entry(*b); });
  std::size_t total = 0;
  for (ArenaEntry* entry : order) {
    const std::size_t size = size_of_entry(*entry);
    std::size_t offset = 0;
    for (const ArenaEntry* other : placed) {
      if (other->last < entry->first || entry->last < other->first) continue;
      if (offset + size <= other->offset) break;
      offset = std::max(offset, other->offset + size_of_entry(*other));
    }
    entry->offset = offset;
    total = std::max(total, offset + size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, [](const ArenaEntry* e) { return e->offset; }), entry);
  }
  return total;
}

}  // namespace ulpscope
