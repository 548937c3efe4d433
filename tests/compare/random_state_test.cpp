#include "compare/random_state.h"

#include <gtest/gtest.h>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

// The values are those of numpy.random.RandomState.

TEST(RandomState, DrawsNumpysWords) {
  RandomState random(5489);
  EXPECT_EQ(random.next_uint32(), 3499211612u);  // the first number of the reference implementation
  for (int i = 2; i < 1000; ++i) random.next_uint32();
  EXPECT_EQ(random.next_uint32(), 1341017984u);  // number 1000
}

TEST(RandomState, DrawsNumpysDoubles) {
  RandomState random(1);
  const Tensor values = random.random_sample({4});
  EXPECT_EQ(values.data<double>()[0], 0.417022004702574);
  EXPECT_EQ(values.data<double>()[1], 0.7203244934421581);
  EXPECT_EQ(values.data<double>()[2], 0.00011437481734488664);
  EXPECT_EQ(values.data<double>()[3], 0.30233257263183977);
}

TEST(RandomState, OneValueNeedsNoDraw) {
  RandomState random(1);
  EXPECT_EQ(random.randint(7, 8, {3}, DataType::kInt32).data<std::int32_t>()[2], 7);
  EXPECT_EQ(random.next_double(), 0.417022004702574);
}

TEST(RandomState, RefusesWhatTheTypeCannotHold) {
  RandomState random(1);
  EXPECT_THROW(random.randint(3, 3, {1}, DataType::kInt32), Error);
  EXPECT_THROW(random.randint(0, 129, {1}, DataType::kInt8), Error);
  EXPECT_THROW(random.randint(-1, 5, {1}, DataType::kUInt8), Error);
  EXPECT_THROW(random.randint(0, 2, {1}, DataType::kFloat32), Error);
  EXPECT_NO_THROW(random.randint(-128, 128, {1}, DataType::kInt8));
}

}  // namespace
}  // namespace ulpscope
