// Host memory for plans with many outputs: one block per run instead of fresh pages for each of them, which
// cost more than the copies from a device, and as much as the computation where many threads touch them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace ulpscope {

/// So many outputs are looked at and dropped; fewer are kept one by one by who runs the network, and a block for all
/// would stay with the last.
inline constexpr std::size_t kManyResults = 16;

/// Blocks of one size. Thread-safe.
class ResultBlocks {
 public:
  /// `kept`: how many that nobody holds any more wait for the next runs.
  static std::shared_ptr<ResultBlocks> make(std::size_t bytes, std::size_t kept);
  /// For its owner alone. Comes back when the last copy is gone; may outlive this.
  std::shared_ptr<std::byte> take();

 private:
  ResultBlocks(std::size_t bytes, std::size_t kept) : bytes_(bytes), kept_(kept) {}
  void give_back(std::shared_ptr<std::byte> block);

  const std::size_t bytes_, kept_;
  std::weak_ptr<ResultBlocks> self_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<std::byte>> free_;
};

}  // namespace ulpscope
