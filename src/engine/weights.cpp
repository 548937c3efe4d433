#include "engine/weights.h"

namespace ulpscope {
namespace {

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

Tensor WeightCache::get(const std::string& key, const std::function<Tensor()>& make) {
  return find_or_make(mutex_, tensors_, key, make);
}

std::shared_ptr<const void> WeightCache::get_object(const std::string& key,
                                                    const std::function<std::shared_ptr<const void>()>& make) {
  return find_or_make(mutex_, objects_, key, make);
}

}  // namespace ulpscope
