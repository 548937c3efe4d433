// Activations of earlier runs, for plans that compute the same values again.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// Names the elements of a stored tensor: a hash of everything that they depend on, down to the inputs of the network
/// (128 bits, so that two different values never share a key in practice).
using ActivationKey = std::pair<std::uint64_t, std::uint64_t>;

/// The activations of one network for one sample. Gives way, the longest unused first, when there are more bytes than
/// the limit. Not thread-safe.
class ActivationStore {
 public:
  explicit ActivationStore(std::size_t byte_limit) : byte_limit_(byte_limit) {}

  /// Null when it is not there. The elements must not be changed.
  const Tensor* find(const ActivationKey& key);
  bool contains(const ActivationKey& key) const { return entries_.contains(key); }
  /// Takes a tensor that nobody changes any more. One that is larger than the limit is not kept.
  void put(const ActivationKey& key, Tensor tensor);

  void set_byte_limit(std::size_t byte_limit);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    Tensor tensor;
    std::list<ActivationKey>::iterator use;
  };
  void make_room();

  std::size_t byte_limit_, bytes_ = 0;
  std::map<ActivationKey, Entry> entries_;
  std::list<ActivationKey> uses_;  ///< The most recent one first.
};

}  // namespace ulpscope
