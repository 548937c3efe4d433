#include "runners/message.h"

#include <gmock/gmock.h>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::Key;

Value read(std::string_view message) { return unpack(message, {}, nullptr); }

TEST(MessageTest, MapsKeepTheirOrder) {
  const Value value = Value::Map{{"z", 1}, {"a", 2.5}, {"m", Value::Map{{"y", true}, {"b", Value()}}}};
  const Value back = read(pack(value).message);
  EXPECT_THAT(back.map(), ElementsAre(Key("z"), Key("a"), Key("m")));
  EXPECT_THAT(back["m"].map(), ElementsAre(Key("y"), Key("b")));
  EXPECT_EQ(back["a"].real(), 2.5);
}

TEST(MessageTest, NumbersOfTheFormat) {
  using namespace std::string_literals;
  EXPECT_EQ(read("\xd3\x80\0\0\0\0\0\0\0"s).integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(read("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"s).integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(read("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"s).real(), 18446744073709551616.0);
  EXPECT_EQ(read("\xca\x3f\x80\0\0"s).real(), 1.0);
  EXPECT_EQ(read("\xc4\x02\xff\0"s).text(), "\xff\0"s);
}

TEST(MessageTest, TensorsLieBesideTheMessage) {
  const Tensor first = Tensor::of<float>({2}, {1, 2}), second = Tensor::of<float>({1}, {3});
  const PackedMessage packed = pack(Value::Array{first, Tensor(DataType::kInt8, {0, 2}), second});
  ASSERT_EQ(packed.tensors.size(), 2u);
  EXPECT_EQ(packed.tensors[1].first, 64u);
  std::vector<std::byte> memory(packed.shared_bytes);
  for (const auto& [offset, tensor] : packed.tensors)
    std::copy_n(static_cast<const std::byte*>(tensor.raw()), tensor.bytes(), memory.data() + offset);
  const Value back = unpack(packed.message, memory, nullptr);
  EXPECT_EQ(back.array()[1].tensor().shape(), (Shape{0, 2}));
  EXPECT_THAT(back.array()[2].tensor().values<float>(), ElementsAre(3));
  memory.pop_back();
  EXPECT_THROW(unpack(packed.message, memory, nullptr), Error);
}

TEST(MessageTest, OtherBytesAreRefused) {
  using namespace std::string_literals;
  for (const std::string& message : {""s, "\xc1"s,
                                     "\xa5"
                                     "ab"s,
                                     "\x92\x01"s, "\x01\x02"s, "\x81\x01\x02"s,
                                     "\xc7\x01\x05"
                                     "a"s,
                                     "\xc7\x02\x01\x92\x01"s, std::string(200, '\x91') + "\x01"})
    EXPECT_THROW(read(message), Error) << ::testing::PrintToString(message);
}

}  // namespace
}  // namespace ulpscope
