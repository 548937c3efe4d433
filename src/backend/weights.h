// Constants, prepared once for every way in which layers read them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// Shared by all plans of one network, and by networks that have constants in common; thread-safe. A copy refers to the
/// same entries, with a scope of its own.
class WeightCache {
 public:
  WeightCache();
  WeightCache(const WeightCache& other);
  WeightCache& operator=(const WeightCache& other);
  ~WeightCache();

  /// The tensor that `make` gives, made at most once per key. `key` names the constants and what is done to them.
  Tensor get(const std::string& key, const std::function<Tensor()>& make);

  /// The same for anything that a kernel keeps (packed weights, primitives).
  std::shared_ptr<const void> get_object(const std::string& key,
                                         const std::function<std::shared_ptr<const void>()>& make);

  /// Drops everything whose key contains this text. What plans use lives on with them.
  void forget(std::string_view part_of_key);

  /// Names a constant of a network by its bytes, whatever network it is in. The bytes are kept, and must not change.
  std::string name_of(const Tensor& constant);
  /// Names what is this network's own.
  const std::string& scope() const noexcept { return scope_; }

 private:
  struct Entries;
  std::shared_ptr<Entries> entries_;
  std::string scope_;
};

}  // namespace ulpscope
