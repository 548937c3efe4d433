#include "ulpscope/raised_layers.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace ulpscope {

RaisedLayers::RaisedLayers(std::initializer_list<std::pair<std::string, Precision>> layers) {
  auto names = std::make_shared<std::vector<std::string>>();
  for (const auto& [name, precision] : layers) {
    names->push_back(name);
    marks_.push_back(mark_of(precision));
  }
  table_ = std::move(names);
}

RaisedLayers::RaisedLayers(Table table, Marks marks) : table_(std::move(table)), marks_(std::move(marks)) {
  while (!marks_.empty() && marks_.back() == 0) marks_.pop_back();
}

std::size_t RaisedLayers::size() const noexcept {
  return marks_.size() - static_cast<std::size_t>(std::ranges::count(marks_, std::uint8_t{0}));
}

std::vector<std::pair<std::string, Precision>> RaisedLayers::layers() const {
  std::vector<std::pair<std::string, Precision>> result;
  for (std::size_t i = 0; i < marks_.size(); ++i)
    if (marks_[i] != 0) result.emplace_back((*table_)[i], static_cast<Precision>(marks_[i] - 1));
  return result;
}

bool operator==(const RaisedLayers& a, const RaisedLayers& b) {
  if (a.table_ == b.table_) return a.marks_ == b.marks_;
  if (a.size() != b.size()) return false;
  std::unordered_map<std::string_view, std::uint8_t> marks;
  for (std::size_t i = 0; i < a.marks_.size(); ++i)
    if (a.marks_[i] != 0) marks.emplace((*a.table_)[i], a.marks_[i]);
  for (std::size_t i = 0; i < b.marks_.size(); ++i) {
    if (b.marks_[i] == 0) continue;
    const auto found = marks.find((*b.table_)[i]);
    if (found == marks.end() || found->second != b.marks_[i]) return false;
  }
  return true;
}

}  // namespace ulpscope
