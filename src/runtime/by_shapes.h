// What samples of the same shapes have in common, while they need it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

inline std::vector<Shape> shapes_of(std::span<const Tensor> tensors) {
  std::vector<Shape> shapes;
  for (const Tensor& tensor : tensors) shapes.push_back(tensor.shape());
  return shapes;
}

/// A value per input shapes, made by whoever asks first and dropped after its last use: no more of them are there than
/// are worked with, however many shapes there are. Thread-safe.
template <typename Value>
class ByShapes {
 public:
  /// One more use is to come.
  void expect(const std::vector<Shape>& shapes) { ++entries_[shapes].uses; }

  /// Each expected use gets it once.
  template <typename Make>
  std::shared_ptr<Value> use(const std::vector<Shape>& shapes, const Make& make) {
    Entry& entry = entries_.at(shapes);
    const std::lock_guard lock(entry.mutex);
    if (entry.value == nullptr) entry.value = make();
    const std::shared_ptr<Value> result = entry.value;
    if (--entry.uses == 0) entry.value.reset();
    return result;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::shared_ptr<Value> value;
    int uses = 0;
  };
  std::map<std::vector<Shape>, Entry> entries_;
};

}  // namespace ulpscope
