#include "ulpscope/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace ulpscope
