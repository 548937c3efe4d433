// Activations of earlier runs, for plans that compute the same values again.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string_view>
#include <utility>

namespace ulpscope {

/// Names the elements of a stored tensor: a hash of everything that they depend on, down to the inputs of the network
/// (128 bits, so that two different values never share a key in practice).
using ActivationKey = std::pair<std::uint64_t, std::uint64_t>;
ActivationKey activation_key(std::string_view depends_on);

/// The activations of one network for one sample, as the backend that puts them in keeps them: tensors, or memory of
/// its device. Evicts the least recently used ones above the limit. Not thread-safe.
class ActivationStore {
 public:
  explicit ActivationStore(std::size_t byte_limit) : byte_limit_(byte_limit) {}

  /// Null when it is not there, or not of this type. The elements must not be changed.
  template <typename Value>
  const Value* find(const ActivationKey& key) {
    return std::any_cast<Value>(used(key));
  }
  bool contains(const ActivationKey& key) const { return entries_.contains(key); }
  /// REQUIRES: the elements do not change any more. Keeps nothing that is larger than the limit.
  void put(const ActivationKey& key, std::any value, std::size_t bytes);

  void set_byte_limit(std::size_t byte_limit);
  std::size_t byte_limit() const noexcept { return byte_limit_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    std::any value;
    std::size_t bytes;
    std::list<ActivationKey>::iterator use;
  };
  const std::any* used(const ActivationKey& key);
  void make_room();

  std::size_t byte_limit_, bytes_ = 0;
  std::map<ActivationKey, Entry> entries_;
  std::list<ActivationKey> uses_;  ///< The most recent one first.
};

}  // namespace ulpscope
