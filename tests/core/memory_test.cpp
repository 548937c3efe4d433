#include "core/memory.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ulpscope {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Memory, LargeBlocksServeAgain) {
  give_back_freed_memory();
  const std::byte* const first = allocate_elements(8 * kMiB).get();
  EXPECT_EQ(allocate_elements(7 * kMiB).get(), first) << "it is large enough, and hardly larger";
  EXPECT_NE(allocate_elements(4 * kMiB).get(), first) << "half of it would lie idle";
  EXPECT_NE(allocate_elements(9 * kMiB).get(), first);
}

TEST(Memory, BlocksThatAreHeldLieApart) {
  std::vector<std::shared_ptr<std::byte>> held;
  std::set<const std::byte*> begins;
  for (int i = 0; i < 12; ++i) {
    held.push_back(allocate_elements(2 * kMiB));
    std::fill_n(reinterpret_cast<char*>(held.back().get()), 2 * kMiB, static_cast<char>(i));
    begins.insert(held.back().get());
    if (i % 3 == 2) held.erase(held.begin());
  }
  for (const auto& block : held) EXPECT_EQ(block.get()[0], block.get()[2 * kMiB - 1]);
  EXPECT_GE(begins.size(), held.size());
}

TEST(Memory, FreedBlocksGoBackWhenAsked) {
  const std::uint64_t before = anonymous_bytes();
  if (before == 0) GTEST_SKIP() << "the system does not tell";
  {
    const auto block = allocate_elements(24 * kMiB);
    std::fill_n(reinterpret_cast<char*>(block.get()), 24 * kMiB, '\1');
    EXPECT_GE(anonymous_bytes(), before + 20 * kMiB);
  }
  give_back_freed_memory();
  EXPECT_LT(anonymous_bytes(), before + 8 * kMiB);
}

}  // namespace
}  // namespace ulpscope
