// What was chosen for a convolution of the same shapes before.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cpu/product.h"
#include "core/parallel.h"

namespace ulpscope::cpu {

/// All that oneDNN decides by, in a row: the shapes and types of a convolution, not its values, and the threads that it
/// may take.
inline std::vector<std::int64_t> shape_key(const ConvolutionSpec& spec) {
  std::vector<std::int64_t> key{num_threads(), static_cast<std::int64_t>(spec.type), spec.transposed,
                                static_cast<bool>(spec.bias), spec.groups};
  for (const std::vector<std::int64_t>* part : {&spec.strides, &spec.dilations, &spec.pads_begin, &spec.pads_end}) {
    key.push_back(std::ssize(*part));
    key.insert(key.end(), part->begin(), part->end());
  }
  for (const Shape* shape : {&spec.input, &spec.output, &spec.kernel}) {
    key.push_back(std::ssize(*shape));
    key.insert(key.end(), shape->begin(), shape->end());
  }
  for (const PostOp& op : spec.post_ops) key.push_back(static_cast<std::int64_t>(op.kind));
  return key;
}

/// Choices of one kind for the whole process. With many threads oneDNN weighs many ways to share the work: a
/// description of ResNet-50's convolutions takes up to 1 ms with 16 threads, and a search makes a plan a dozen times.
/// What `Choice` refers to is shared, so that a copy of it must not be changed.
template <typename Choice>
class KnownChoices {
 public:
  template <typename Make>
  Choice get(const ConvolutionSpec& spec, const Make& make) {
    std::vector<std::int64_t> key = shape_key(spec);
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
    }
    Choice made = make();
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 4096;  // A process that meets ever new shapes starts again.
    if (choices_.size() >= kMost) choices_.clear();
    return choices_.try_emplace(std::move(key), std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<std::int64_t>, Choice> choices_;
};

}  // namespace ulpscope::cpu
