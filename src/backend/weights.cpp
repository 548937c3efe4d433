#include "backend/weights.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

namespace ulpscope {

struct WeightCache::Entries {
  std::mutex mutex;
  std::map<std::string, Tensor, std::less<>> tensors;
  std::map<std::string, std::shared_ptr<const void>, std::less<>> objects;
  std::map<const void*, std::pair<Tensor, int>> constants;
};

namespace {

std::string new_scope() {
  static std::atomic<int> next{0};
  return fmt::format("{}:", next++);
}

template <typename Map, typename Make>
auto find_or_make(std::mutex& mutex, Map& map, const std::string& key, const Make& make) {
  {
    const std::lock_guard lock(mutex);
    if (const auto found = map.find(key); found != map.end()) return found->second;
  }
  auto made = make();  // Outside of the lock: preparing may be slow and may ask for other entries.
  const std::lock_guard lock(mutex);
  return map.emplace(key, std::move(made)).first->second;
}

}  // namespace

WeightCache::WeightCache() : entries_(std::make_shared<Entries>()), scope_(new_scope()) {}
WeightCache::WeightCache(const WeightCache& other) : entries_(other.entries_), scope_(new_scope()) {}
WeightCache& WeightCache::operator=(const WeightCache& other) {
  entries_ = other.entries_;
  scope_ = new_scope();
  return *this;
}
WeightCache::~WeightCache() = default;

Tensor WeightCache::get(const std::string& key, const std::function<Tensor()>& make) {
  return find_or_make(entries_->mutex, entries_->tensors, key, make);
}

std::shared_ptr<const void> WeightCache::get_object(const std::string& key,
                                                    const std::function<std::shared_ptr<const void>()>& make) {
  return find_or_make(entries_->mutex, entries_->objects, key, make);
}

void WeightCache::forget(std::string_view part_of_key) {
  const auto has_part = [&](const auto& entry) { return entry.first.find(part_of_key) != std::string::npos; };
  const std::lock_guard lock(entries_->mutex);
  std::erase_if(entries_->tensors, has_part);
  std::erase_if(entries_->objects, has_part);
}

std::string WeightCache::name_of(const Tensor& constant) {
  const std::lock_guard lock(entries_->mutex);
  auto& constants = entries_->constants;
  const auto found = constants.try_emplace(constant.raw(), constant, static_cast<int>(constants.size())).first;
  return fmt::format("constant {} {}{}", found->second.second, ulpscope::name_of(constant.type()),
                     to_string(constant.shape()));
}

}  // namespace ulpscope
