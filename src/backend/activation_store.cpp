#include "backend/activation_store.h"

namespace ulpscope {

const Tensor* ActivationStore::find(const ActivationKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return &found->second.tensor;
}

void ActivationStore::put(const ActivationKey& key, Tensor tensor) {
  const std::size_t bytes = tensor.bytes();
  if (bytes > byte_limit_ || entries_.contains(key)) return;
  uses_.push_front(key);
  entries_.emplace(key, Entry{std::move(tensor), uses_.begin()});
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
    bytes_ -= oldest->second.tensor.bytes();
    entries_.erase(oldest);
    uses_.pop_back();
  }
}

}  // namespace ulpscope
