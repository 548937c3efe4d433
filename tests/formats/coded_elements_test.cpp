// Codes that stay packed give the numbers that they stand for, piece by piece as at once.
#include "formats/coded_elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/codes.h"
#include "formats/stored_elements.h"

namespace ulpscope {
namespace {

constexpr std::int64_t kRows = 96, kColumns = 513, kCount = kRows * kColumns;

std::vector<std::uint8_t> random_codes(int bits) {
  std::mt19937 random(static_cast<unsigned>(bits));
  std::vector<std::uint8_t> codes(kCount);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random() & ((1u << bits) - 1));
  return codes;
}

/// Of a source with parts: all of it, and pieces that begin and end anywhere.
void expect_values(const Tensor& tensor, const std::vector<float>& expected) {
  ASSERT_TRUE(has_parts(tensor));
  const auto equal = [](float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b); };
  const Tensor made = tensor.in_memory();
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_TRUE(equal(made.data<float>()[i], expected[i])) << i;
  for (const std::int64_t begin : {0, 1, 7, 4095, 4097, 20000})
    for (const std::int64_t count : {0, 1, 3, 4096, 9001}) {
      std::vector<float> part(static_cast<std::size_t>(count));
      read_elements(tensor, begin, count, part.data());
      for (std::int64_t i = 0; i < count; ++i) ASSERT_TRUE(equal(part[i], expected[begin + i])) << begin << " " << i;
    }
}

TEST(CodedElements, ReadPackedCodesOfEveryFormat) {
  for (const DataType type : {DataType::kInt4, DataType::kUInt4, DataType::kInt2, DataType::kFloat4E2M1,
                              DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    SCOPED_TRACE(name_of(type));
    const NumericFormat& format = *format_of(type);
    const std::vector<std::uint8_t> codes = random_codes(format.bits());
    std::vector<std::uint8_t> bytes(packed_bytes(format, codes.size()));
    pack(format, codes.data(), codes.size(), bytes.data());
    std::vector<float> expected;
    for (const std::uint8_t code : codes) {
      std::int8_t integer = 0;
      unwrap_array(format, &code, &integer, 1);
      const bool is_signed = format.sign_bit() != 0;
      expected.push_back(format.is_float ? static_cast<float>(decode(format, code))
                         : is_signed     ? static_cast<float>(integer)
                                         : static_cast<float>(code));
    }
    const CodedElements::Codes packed{type, reinterpret_cast<const std::byte*>(bytes.data()), true, nullptr};
    const Shape shape{kRows, kColumns};
    expect_values(
        Tensor::deferred(DataType::kFloat32, shape, std::make_shared<CodedElements>(DataType::kFloat32, shape, packed)),
        expected);
    const Tensor same = CodedElements(type, shape, packed).make();
    EXPECT_EQ(std::memcmp(same.raw(), codes.data(), codes.size()), 0);
  }
}

struct Scales {
  Shape shape;
  std::int64_t axis, block;
};

TEST(DequantizedElements, AreTheirCodesTimesTheScaleOfTheirPlace) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> real(0.5f, 2.0f);
  Tensor codes(DataType::kInt8, {kRows, kColumns});
  for (std::int64_t i = 0; i < kCount; ++i) codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(random());
  for (const auto& [shape, axis, block] :
       {Scales{{}, 0, 0}, Scales{{kRows}, 0, 0}, Scales{{kColumns}, 1, 0}, Scales{{kRows / 16, kColumns}, 0, 16},
        Scales{{kRows, 33}, 1, 16}, Scales{{kRows, 1}, 1, kColumns}})
    for (const bool shifted : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "axis " << axis << ", block " << block << ", zero points " << shifted);
      Tensor scales(DataType::kFloat32, shape), zeros(DataType::kInt8, shape);
      for (std::int64_t i = 0; i < scales.size(); ++i) {
        scales.data<float>()[i] = real(random);
        zeros.data<std::int8_t>()[i] = static_cast<std::int8_t>(random());
      }
      const auto layout = DequantizedElements::layout({kRows, kColumns}, shape, axis, block);
      ASSERT_TRUE(layout);
      std::vector<float> expected;
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t c = 0; c < kColumns; ++c) {
          const std::int64_t at = axis == 0 ? r : c;
          const std::int64_t place = shape.empty() ? 0
                                     : block == 0  ? at
                                     : axis == 0   ? r / block * kColumns + c
                                                   : r * shape[1] + c / block;
          const int zero = shifted ? zeros.data<std::int8_t>()[place] : 0;
          expected.push_back(static_cast<float>(codes.data<std::int8_t>()[r * kColumns + c] - zero) *
                             scales.data<float>()[place]);
        }
      expect_values(
          Tensor::deferred(DataType::kFloat32, {kRows, kColumns},
                           std::make_shared<DequantizedElements>(codes, *layout, scales, shifted ? zeros : Tensor())),
          expected);
    }
  EXPECT_FALSE(DequantizedElements::layout({kRows, kColumns}, {kRows + 1}, 0, 0));
}

}  // namespace
}  // namespace ulpscope
