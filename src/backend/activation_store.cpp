#include "backend/activation_store.h"

#include <xxhash.h>

namespace ulpscope {

ActivationKey activation_key(std::string_view depends_on) {
  const XXH128_hash_t hash = XXH3_128bits(depends_on.data(), depends_on.size());
  return {hash.high64, hash.low64};
}

const std::any* ActivationStore::used(const ActivationKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return &found->second.value;
}

void ActivationStore::put(const ActivationKey& key, std::any value, std::size_t bytes) {
  if (bytes > byte_limit_ || entries_.contains(key)) return;
  uses_.push_front(key);
  entries_.emplace(key, Entry{std::move(value), bytes, uses_.begin()});
  bytes_ += bytes;
  make_room();
}

void ActivationStore::set_byte_limit(std::size_t byte_limit) {
  byte_limit_ = byte_limit;
  make_room();
}

void ActivationStore::make_room() {
  while (bytes_ > byte_limit_ && !uses_.empty()) {
    const auto oldest = entries_.find(uses_.back());
    bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
    uses_.pop_back();
  }
}

}  // namespace ulpscope
