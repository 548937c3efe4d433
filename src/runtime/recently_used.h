// A few values per input shapes.
#pragma once

#include <list>
#include <map>
#include <utility>
#include <vector>

#include "ulpscope/shape.h"

namespace ulpscope {

/// Values per input shapes, so many at most: the longest unused one gives way.
template <typename Value>
class RecentlyUsed {
 public:
  explicit RecentlyUsed(std::size_t limit) : limit_(limit) {}

  /// Null when it is not there.
  Value find(const std::vector<Shape>& shapes) {
    const auto found = entries_.find(shapes);
    if (found == entries_.end()) return nullptr;
    uses_.splice(uses_.begin(), uses_, found->second.use);
    return found->second.value;
  }
  /// Any one, null when there is none.
  Value any() const { return entries_.empty() ? nullptr : entries_.begin()->second.value; }

  /// Keeps the value unless there is one already. Gives what had to give way, or null.
  Value put(const std::vector<Shape>& shapes, Value value) {
    if (find(shapes) != nullptr) return nullptr;
    uses_.push_front(shapes);
    entries_.emplace(shapes, Entry{std::move(value), uses_.begin()});
    if (entries_.size() <= limit_) return nullptr;
    const auto oldest = entries_.find(uses_.back());
    Value dropped = std::move(oldest->second.value);
    entries_.erase(oldest);
    uses_.pop_back();
    return dropped;
  }

 private:
  struct Entry {
    Value value;
    std::list<std::vector<Shape>>::iterator use;
  };
  const std::size_t limit_;
  std::map<std::vector<Shape>, Entry> entries_;
  std::list<std::vector<Shape>> uses_;  ///< The most recent one first.
};

}  // namespace ulpscope
