// Memory that a thread works in from call to call.
#pragma once

#include <cstddef>
#include <memory>

#include "core/memory.h"

namespace ulpscope::cpu {

/// Grows and stays. One use each: `thread_local ThreadMemory`.
class ThreadMemory {
 public:
  /// So many bytes, aligned to 64; what was in them is gone. Throws std::bad_alloc.
  std::byte* get(std::size_t bytes) {
    if (size_ < bytes) {
      memory_.reset();
      size_ = 0;
      memory_ = allocate_elements(bytes);
      size_ = bytes;
    }
    return memory_.get();
  }
  float* floats(std::size_t count) { return reinterpret_cast<float*>(get(count * sizeof(float))); }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t size_ = 0;
};

}  // namespace ulpscope::cpu
