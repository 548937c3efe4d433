// What WeightCache keeps, and for how long.
#include "backend/weights.h"

#include <gtest/gtest.h>

namespace ulpscope::testing {
namespace {

constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);

/// A source of `bytes` bytes that counts how often it is made.
PreparedSource counted(WeightCache& cache, const std::string& key, std::size_t bytes, int& made) {
  return cache.source(key, [bytes, &made] {
    ++made;
    return PreparedObject{std::make_shared<int>(made), bytes};
  });
}

TEST(WeightCache, MakesOncePerKey) {
  WeightCache cache;
  int made = 0;
  const PreparedSource source = counted(cache, "a", 10, made), same = counted(cache, "a", 10, made);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(source(), source());
  EXPECT_EQ(source(), same());
  EXPECT_EQ(made, 1);
}

TEST(WeightCache, DropsTheLongestUnusedButNotWhatIsHeld) {
  WeightCache cache;
  cache.set_limits({25, kUnlimited});
  int a = 0, b = 0, c = 0;
  const PreparedSource first = counted(cache, "a", 10, a), second = counted(cache, "b", 10, b),
                       third = counted(cache, "c", 10, c);
  const auto held = first();
  second();
  third();  // "a" is the longest unused, but held: "b" goes.
  EXPECT_EQ(first(), held);
  third();
  EXPECT_EQ(a + c, 2);
  second();
  EXPECT_EQ(b, 2);
}

TEST(WeightCache, DropsWhatIsCostlyLast) {
  WeightCache cache;
  cache.set_limits({25, kUnlimited});
  int costly = 0, a = 0, b = 0;
  const PreparedSource other = counted(cache, "a", 10, a), another = counted(cache, "b", 10, b);
  const PreparedAccess access = cache.access("costly");
  const auto scales = [&] {
    return access([&] {
      ++costly;
      return PreparedObject{.object = std::make_shared<int>(1), .bytes = 10, .costly = true};
    });
  };
  scales();
  other();
  another();  // The costly one is the longest unused, but "a" goes.
  scales();
  EXPECT_EQ(costly, 1);
  other();
  EXPECT_EQ(a, 2);
  cache.set_limits({5, kUnlimited});
  scales();
  EXPECT_EQ(costly, 2);
}

TEST(WeightCache, WhatGivesWayToSomethingIsGoneBeforeThatIsMade) {
  WeightCache cache;
  cache.set_limits({25, kUnlimited});
  int a = 0, b = 0;
  const PreparedSource first = counted(cache, "a", 10, a), second = counted(cache, "b", 10, b);
  const std::weak_ptr<const void> longest_unused = first(), other = second();
  cache.room(5)();
  EXPECT_FALSE(longest_unused.expired());
  cache.room(15)();
  EXPECT_TRUE(longest_unused.expired());
  EXPECT_FALSE(other.expired());
  const auto held = second();
  cache.room(100)();  // More than there may be: all goes that nobody holds.
  EXPECT_FALSE(other.expired());
  cache.set_limits({kUnlimited, kUnlimited});
  cache.room(kUnlimited)();
  EXPECT_FALSE(other.expired());
}

TEST(WeightCache, CountsTensorsThatAreInUse) {
  WeightCache cache;
  cache.set_limits({1, kUnlimited});
  int made = 0;
  const auto make = [&] { return ++made, Tensor::of<float>({2}, {1, 2}); };
  {
    const Tensor held = cache.get("a", make);
    cache.get("b", make);
    EXPECT_EQ(cache.get("a", make).raw(), held.raw());
    EXPECT_EQ(made, 2);
  }
  cache.get("c", make);
  cache.get("a", make);
  EXPECT_EQ(made, 4);
}

TEST(WeightCache, ForgetsWhatWasMadeOfConstantsThatAreGone) {
  WeightCache cache;
  int made = 0;
  std::vector<float> place(2, 1.0F);
  const auto constant = [&] { return Tensor::borrow(DataType::kFloat32, {2}, place.data(), std::make_shared<int>(0)); };
  std::string before;
  {
    const Tensor value = constant();
    before = cache.name_of(value);
    EXPECT_EQ(cache.name_of(value), before);
    counted(cache, before + "|rounded", 10, made)();
    const WeightCache copy(cache);
    counted(cache, before + "|rounded", 10, made)();
    EXPECT_EQ(made, 1);
  }
  const WeightCache copy(cache);
  counted(cache, before + "|rounded", 10, made)();
  EXPECT_EQ(made, 2);
  // Other elements at the same place have another name.
  EXPECT_NE(cache.name_of(constant()), before);
}

TEST(WeightCache, HandsArenasOutOnceAtATime) {
  WeightCache cache;
  auto first = cache.arena(100);
  const auto second = cache.arena(100);
  EXPECT_NE(first, second);
  const void* place = first.get();
  first.reset();
  EXPECT_EQ(cache.arena(50).get(), place);
}

}  // namespace
}  // namespace ulpscope::testing
