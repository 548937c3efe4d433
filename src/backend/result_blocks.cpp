#include "backend/result_blocks.h"

#include <utility>

#include "core/memory.h"

namespace ulpscope {

std::shared_ptr<ResultBlocks> ResultBlocks::make(std::size_t bytes, std::size_t kept) {
  std::shared_ptr<ResultBlocks> made(new ResultBlocks(bytes, kept));
  made->self_ = made;
  return made;
}

std::shared_ptr<std::byte> ResultBlocks::take() {
  std::shared_ptr<std::byte> block;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      block = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (block == nullptr) block = allocate_elements(bytes_);
  std::byte* const data = block.get();
  return {data, [block = std::move(block), self = self_](std::byte*) mutable {
            if (const auto blocks = self.lock()) blocks->give_back(std::move(block));
          }};
}

void ResultBlocks::give_back(std::shared_ptr<std::byte> block) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kept_) free_.push_back(std::move(block));
}

}  // namespace ulpscope
