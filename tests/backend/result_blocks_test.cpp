// Memory of results: never shared by two who hold it, and used again when nobody does.
#include "backend/result_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "core/memory.h"

namespace ulpscope {
namespace {

constexpr std::size_t kBytes = std::size_t{3} << 20;

TEST(ResultBlocks, ServeTheNextRunWhenNobodyHoldsThem) {
  const auto blocks = ResultBlocks::make(kBytes, 2);
  auto first = blocks->take(), second = blocks->take();
  EXPECT_NE(first, second);
  std::byte* const place = first.get();
  const auto copy = first;
  first.reset();
  EXPECT_NE(blocks->take().get(), place) << "somebody holds it";
  std::memset(copy.get(), 1, kBytes);
}

TEST(ResultBlocks, ComeBackWithTheirLastHandle) {
  const auto blocks = ResultBlocks::make(kBytes, 1);
  std::byte* const place = blocks->take().get();
  EXPECT_EQ(blocks->take().get(), place);
}

TEST(ResultBlocks, KeepNoMoreThanTheyMay) {
  const std::uint64_t before = held_element_bytes();
  auto blocks = ResultBlocks::make(kBytes, 2);
  {
    std::vector<std::shared_ptr<std::byte>> held;
    for (int i = 0; i < 5; ++i) held.push_back(blocks->take());
    EXPECT_GE(held_element_bytes(), before + 5 * kBytes);
  }
  EXPECT_EQ(held_element_bytes(), before + 2 * kBytes);
  const auto outlives = blocks->take();
  blocks.reset();
  EXPECT_EQ(held_element_bytes(), before + kBytes);
  std::memset(outlives.get(), 1, kBytes);
  const auto none = ResultBlocks::make(kBytes, 0);
  none->take();
  EXPECT_EQ(held_element_bytes(), before + kBytes);
}

TEST(ResultBlocks, BelongToOneThreadAtATime) {
  const auto blocks = ResultBlocks::make(1024, 3);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto block = blocks->take();
        std::memset(block.get(), t, 1024);
        for (int b = 0; b < 1024; ++b) ASSERT_EQ(block.get()[b], static_cast<std::byte>(t));
      }
    });
}

}  // namespace
}  // namespace ulpscope
