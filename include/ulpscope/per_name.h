// Options that hold for all names, or for some.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ulpscope {

/// A value per tensor name; the empty name holds the default for names that are not listed.
template <typename T>
class PerName {
 public:
  PerName() = default;
  /// One value for all names.
  PerName(T value) { set("", std::move(value)); }  // NOLINT(google-explicit-constructor)

  /// A name given twice keeps the later value.
  void set(std::string name, T value) {
    for (auto& entry : entries_) {
      if (entry.first == name) {
        entry.second = std::move(value);
        return;
      }
    }
    entries_.emplace_back(std::move(name), std::move(value));
  }
  /// All that are given there.
  void set(const PerName& given) {
    for (const auto& [name, value] : given.entries()) set(name, value);
  }
  /// The value of the name, else that of the empty name, else null.
  const T* find(std::string_view name) const {
    const T* fallback = nullptr;
    for (const auto& [key, value] : entries_) {
      if (key == name) return &value;
      if (key.empty()) fallback = &value;
    }
    return fallback;
  }
  T get(std::string_view name, T otherwise) const {
    const T* found = find(name);
    return found != nullptr ? *found : otherwise;
  }
  const std::vector<std::pair<std::string, T>>& entries() const noexcept { return entries_; }
  bool empty() const noexcept { return entries_.empty(); }

 private:
  std::vector<std::pair<std::string, T>> entries_;
};

}  // namespace ulpscope
