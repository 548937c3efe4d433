// Constants, prepared once for every way in which layers read them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/rounding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Shared by all plans of one network; thread-safe.
class WeightCache {
 public:
  /// The tensor that `make` gives, made at most once per key. `key` names the constants and what is done to them.
  Tensor get(const std::string& key, const std::function<Tensor()>& make);

  /// The same for anything that a kernel keeps (packed weights, primitives).
  std::shared_ptr<const void> get_object(const std::string& key,
                                         const std::function<std::shared_ptr<const void>()>& make);

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::shared_ptr<const void>, std::less<>> objects_;
};

}  // namespace ulpscope
