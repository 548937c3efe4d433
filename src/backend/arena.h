// Where the activations of a plan lie in one block of memory.
#pragma once

#include <cstddef>
#include <vector>

namespace ulpscope {

/// So many outputs of a run share one block, which its owners look at and drop; fewer are kept one by one by who runs
/// the network, and a block for all would stay with the last.
inline constexpr std::size_t kManyResults = 16;

/// Bytes that are in use from step `first` to step `last`, both included. `first` < 0: never.
struct ArenaEntry {
  std::size_t bytes = 0;
  int first = -1, last = -1;
  std::size_t offset = 0;  ///< Set by place_in_arena.
};

/// Gives every entry an offset, a multiple of `alignment`, so that no two that are in use at the same step overlap. The
/// bytes of the block. By decreasing size, each at the lowest place that is free for its whole life (Pisarchyk and Lee,
/// "Efficient Memory Management for Deep Neural Net Inference", 2020, greedy by size).
std::size_t place_in_arena(std::vector<ArenaEntry>& entries, std::size_t alignment);

}  // namespace ulpscope
