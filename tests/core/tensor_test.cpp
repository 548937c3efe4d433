#include "ulpscope/tensor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "core/tensor_source.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

TEST(Tensor, CopiesShareBytesAndClonesDoNot) {
  Tensor a = Tensor::of<float>({2}, {1, 2});
  Tensor shared = a, copy = a.clone();
  a.data<float>()[0] = 7;
  EXPECT_EQ(shared.data<float>()[0], 7);
  EXPECT_EQ(copy.data<float>()[0], 1);
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_THROW(Tensor(DataType::kFloat32, {-1}), Error);
  EXPECT_THROW(Tensor(DataType::kFloat32, {1LL << 40, 1LL << 40}), Error);
  EXPECT_THROW(Tensor(DataType::kInt8, {1LL << 45}), Error);     // more than a machine has, less than its addresses
  EXPECT_THROW(Tensor(DataType::kFloat32, {1LL << 62}), Error);  // its bytes are 0 modulo 2^64
  EXPECT_THROW(Tensor(DataType::kString, {1}), Error);
  EXPECT_EQ(Tensor(DataType::kInt8, {3, 0}).size(), 0);
}

TEST(Tensor, RefusesAccessAsAnotherType) { EXPECT_THROW((void)Tensor::scalar(1.0f).data<double>(), InternalError); }

TEST(Tensor, CastsAsNumpyDoes) {
  const Tensor floats = Tensor::of<float>({4}, {-1.9f, 1.9f, 300.0f, 0.0f});
  const Tensor ints = floats.cast(DataType::kInt32);
  EXPECT_EQ(ints.data<std::int32_t>()[0], -1);
  EXPECT_EQ(ints.data<std::int32_t>()[1], 1);
  EXPECT_EQ(floats.cast(DataType::kUInt8).data<std::uint8_t>()[2], 44);
  EXPECT_FALSE(floats.cast(DataType::kBool).data<bool>()[3]);
  EXPECT_TRUE(floats.cast(DataType::kBool).data<bool>()[0]);
}

TEST(Tensor, RoundsOnceOnTheWayToNarrowFloats) {
  const Tensor doubles = Tensor::of<double>({1}, {1.0 + 0x1p-11 + 0x1p-40});
  EXPECT_EQ(doubles.cast(DataType::kFloat16).data<std::uint16_t>()[0], 0x3c01);
  // 2^62 + 2^54 is a tie of bfloat16; one more is above it.
  const Tensor integers = Tensor::of<std::int64_t>({3}, {(1LL << 62) + (1LL << 54) + 1, (1LL << 62) + (1LL << 54), 5});
  const Tensor narrow = integers.cast(DataType::kBFloat16).cast(DataType::kFloat32);
  EXPECT_EQ(narrow.data<float>()[0], std::ldexp(1.0f + 0x1p-7f, 62));
  EXPECT_EQ(narrow.data<float>()[1], std::ldexp(1.0f, 62));
  EXPECT_EQ(narrow.data<float>()[2], 5.0f);
}

TEST(Shape, PrintsAsNumpyDoes) {
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(to_string(Shape{5}), "(5,)");
  EXPECT_EQ(to_string(Shape{1, 2}), "(1, 2)");
  EXPECT_EQ(to_option_string(Shape{1, 2}), "[1,2]");
}

/// The numbers from 0 on; counts how often they were made.
class Numbers final : public TensorSource {
 public:
  Numbers(std::int64_t count, std::atomic<int>& made) : count_(count), made_(made) {}
  Tensor make() const override {
    ++made_;
    Tensor result(DataType::kFloat32, {count_});
    for (std::int64_t i = 0; i < count_; ++i) result.data<float>()[i] = static_cast<float>(i);
    return result;
  }

 private:
  const std::int64_t count_;
  std::atomic<int>& made_;
};

TEST(Tensor, MakesDeferredElementsWhenTheyAreAskedFor) {
  std::atomic<int> made{0};
  const Tensor tensor = Tensor::deferred(DataType::kFloat32, {6}, std::make_shared<Numbers>(6, made));
  const Tensor shaped = tensor.reshaped({2, 3});
  EXPECT_EQ(tensor.bytes(), 24u);
  EXPECT_EQ(tensor.place(), shaped.place());
  EXPECT_EQ(made, 0);
  {
    const Tensor own = shaped.in_memory();
    EXPECT_EQ(own.shape(), (Shape{2, 3}));
    EXPECT_EQ(own.data<float>()[5], 5);
    EXPECT_EQ(own.source(), nullptr);
  }
  EXPECT_EQ(made, 1);
  EXPECT_NE(tensor.source(), nullptr);  // Those left with their tensor.
  EXPECT_EQ(tensor.cast(DataType::kInt32).data<std::int32_t>()[4], 4);
  EXPECT_EQ(tensor.clone().data<float>()[3], 3);
  const int before = made;
  EXPECT_EQ(shaped.data<float>()[5], 5);
  EXPECT_EQ(tensor.data<float>(), shaped.data<float>());  // From here on all handles have them.
  EXPECT_EQ(tensor.in_memory().data<float>(), shaped.data<float>());
  EXPECT_EQ(made, before + 1);
  EXPECT_EQ(tensor.source(), nullptr);
}

TEST(Tensor, MakesDeferredElementsOnceForAllThreads) {
  std::atomic<int> made{0};
  const Tensor tensor = Tensor::deferred(DataType::kFloat32, {1000}, std::make_shared<Numbers>(1000, made));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { right += tensor.data<float>()[999] == 999 ? 1 : 0; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace ulpscope
