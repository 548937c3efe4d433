// The table of number formats against the definitions: brute force over all codes, and the figures of the standards.
#include "formats/numeric_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "formats/codes.h"
#include "formats/convert.h"
#include "formats/rounding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<const NumericFormat*> floats_of_at_most(int bits) {
  std::vector<const NumericFormat*> result;
  for (const NumericFormat& format : numeric_formats())
    if (format.is_float && format.bits() <= bits) result.push_back(&format);
  return result;
}

/// What a format holds, as the standards have it: IEEE 754, OCP OFP8 and MX 1.0, ONNX's "Float stored in 8 bits".
struct Figures {
  Format id;
  int bits;
  double largest, smallest_normal, smallest;
  std::vector<std::uint32_t> infinities, nans;  ///< Some of their codes.
};

TEST(NumericFormat, FiguresAreThoseOfTheStandards) {
  const std::vector<Figures> all{
      {Format::kFloat16, 16, 65504, 0x1p-14, 0x1p-24, {0x7c00}, {0x7c01, 0x7e00, 0xffff}},
      {Format::kBFloat16, 16, 0x1.fep127, 0x1p-126, 0x1p-133, {0x7f80}, {0x7fc0}},
      {Format::kTF32, 19, 0x1.ffcp127, 0x1p-126, 0x1p-136, {}, {}},
      {Format::kFloat8E4M3, 8, 448, 0x1p-6, 0x1p-9, {}, {0x7f, 0xff}},
      {Format::kFloat8E4M3Fnuz, 8, 240, 0x1p-7, 0x1p-10, {}, {0x80}},
      {Format::kFloat8E5M2, 8, 57344, 0x1p-14, 0x1p-16, {0x7c}, {0x7d, 0x7e, 0x7f, 0xff}},
      {Format::kFloat8E5M2Fnuz, 8, 57344, 0x1p-15, 0x1p-17, {}, {0x80}},
      {Format::kFloat8E8M0, 8, 0x1p127, 0x1p-127, 0x1p-127, {}, {0xff}},
      {Format::kFloat6E2M3, 6, 7.5, 1, 0.125, {}, {}},
      {Format::kFloat6E3M2, 6, 28, 0.25, 0.0625, {}, {}},
      {Format::kFloat4E2M1, 4, 6, 1, 0.5, {}, {}},
  };
  for (const Figures& figures : all) {
    const NumericFormat& format = format_of(figures.id);
    SCOPED_TRACE(format.name);
    EXPECT_EQ(format.bits(), figures.bits);
    EXPECT_EQ(format.largest(), figures.largest);
    EXPECT_EQ(std::ldexp(1.0, format.min_exponent()), figures.smallest_normal);
    EXPECT_EQ(decode(format, format.is_exponent_only() ? 0 : 1), figures.smallest);
    for (std::uint32_t code : figures.infinities) EXPECT_EQ(decode(format, code), kInfinity) << code;
    for (std::uint32_t code : figures.nans) EXPECT_TRUE(std::isnan(decode(format, code))) << code;
    int infinities = 0, nans = 0;
    for (std::uint32_t code = 0; figures.bits == 8 && code < 256; ++code) {
      infinities += std::isinf(decode(format, code));
      nans += std::isnan(decode(format, code));
    }
    EXPECT_EQ(infinities > 0, figures.bits == 8 && !figures.infinities.empty());
    if (figures.id == Format::kFloat8E5M2) {
      EXPECT_EQ(nans, 6);
    }
  }
  std::vector<double> fours;
  for (std::uint32_t code = 0; code < 8; ++code) fours.push_back(decode(format_of(Format::kFloat4E2M1), code));
  EXPECT_EQ(fours, (std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6}));
}

/// The finite values of a format that are not negative, in order, with their codes.
std::vector<std::pair<double, std::uint32_t>> magnitudes(const NumericFormat& format) {
  std::vector<std::pair<double, std::uint32_t>> result;
  for (std::uint32_t code = 0; code <= format.magnitude_mask(); ++code)
    if (const double value = decode(format, code); std::isfinite(value)) result.emplace_back(value, code);
  std::sort(result.begin(), result.end());
  return result;
}

/// float32 values around all values of the format, between them, and beyond the largest.
std::vector<float> probes(const std::vector<std::pair<double, std::uint32_t>>& values) {
  std::vector<float> result{1e-45f, 1e-30f, INFINITY, 3e38f};
  const auto add = [&](double value) {
    const auto x = static_cast<float>(value);
    for (float each : {x, std::nextafter(x, INFINITY), std::nextafter(x, 0.0f)}) result.push_back(each);
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    add(values[i].first);
    add(i + 1 < values.size() ? (values[i].first + values[i + 1].first) / 2
                              : values[i].first + (values[i].first - values[i - 1].first) / 2);
  }
  add(values.back().first * 1.5);
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    const float any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(any)) result.push_back(std::fabs(any));
  }
  for (std::size_t i = 0, count = result.size(); i < count; ++i) result.push_back(-result[i]);
  return result;
}

/// By the definition: the nearest of all values, of two the one with the even code.
std::uint32_t nearest(const std::vector<std::pair<double, std::uint32_t>>& values, double magnitude) {
  const auto above = std::lower_bound(values.begin(), values.end(), std::pair{magnitude, 0u});
  if (above == values.begin()) return above->second;
  const auto below = above - 1;
  if (above == values.end()) return below->second;
  const double up = above->first - magnitude, down = magnitude - below->first;
  if (up != down) return up < down ? above->second : below->second;
  return above->second % 2 == 0 ? above->second : below->second;
}

TEST(NumericFormat, RoundsToTheNearestOfAllValuesAndTiesToTheEvenCode) {
  for (const NumericFormat* format : floats_of_at_most(16)) {
    if (format->is_exponent_only()) continue;
    SCOPED_TRACE(format->name);
    const auto values = magnitudes(*format);
    // A value that would be the next, had the format one more exponent, decides where overflow begins.
    const double step = values.back().first - values[values.size() - 2].first;
    const double half = values.back().first + step / 2;
    const bool tie_overflows = values.back().second % 2 != 0;
    for (const float x : probes(values)) {
      const double magnitude = std::fabs(static_cast<double>(x));
      const bool overflows = magnitude > half || (magnitude == half && tie_overflows);
      const std::uint32_t code = nearest(values, magnitude);
      const bool unsigned_zero = format->specials == Specials::kNanAsZero && code == 0;
      const std::uint32_t sign = std::signbit(x) && !unsigned_zero ? format->sign_bit() : 0;
      ASSERT_EQ(encode(*format, x, {.saturate = true}), code | sign) << x;
      const std::uint32_t plain = encode(*format, x, {});
      if (!overflows || !format->has_nan())
        ASSERT_EQ(plain, code | sign) << x;
      else if (format->has_infinity())
        ASSERT_EQ(decode(*format, plain), std::copysign(kInfinity, x)) << x;
      else
        ASSERT_TRUE(std::isnan(decode(*format, plain))) << x;
    }
  }
}

TEST(NumericFormat, ArraysHaveTheBitsOfSingleValues) {
  for (const NumericFormat* format : floats_of_at_most(19)) {
    SCOPED_TRACE(format->name);
    std::vector<float> in = probes(format->bits() > 16 ? magnitudes(format_of(Format::kFloat16)) : magnitudes(*format));
    for (float nan : {NAN, -NAN, 0.0f, -0.0f}) in.push_back(nan);
    in.resize(in.size() - in.size() % 16 + 3);  // the last block of vectors is not full
    for (const bool saturate : {false, true}) {
      std::vector<float> out(in.size()), decoded(in.size());
      std::vector<std::uint8_t> codes(in.size());
      round_array(in.data(), out.data(), in.size(), rounding_to(format->id, saturate));
      if (format->bits() <= 8) {
        encode_array(*format, in.data(), codes.data(), in.size(), {.saturate = saturate});
        decode_array(*format, codes.data(), decoded.data(), codes.size());
      }
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::uint32_t code = encode(*format, in[i], {.saturate = saturate});
        const auto expected = static_cast<float>(decode(*format, code));
        if (std::isnan(expected))
          ASSERT_TRUE(std::isnan(out[i])) << in[i];
        else
          ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(expected)) << in[i];
        ASSERT_EQ(round_value(in[i], rounding_to(format->id, saturate)) == out[i], !std::isnan(out[i]));
        if (format->bits() > 8) continue;
        ASSERT_EQ(codes[i], code) << in[i];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(decoded[i]), std::bit_cast<std::uint32_t>(expected)) << in[i];
      }
    }
  }
}

TEST(NumericFormat, CodesSurviveTheWayThereAndBack) {
  for (const NumericFormat& format : numeric_formats()) {
    if (format.bits() > 16) continue;
    SCOPED_TRACE(format.name);
    for (std::uint32_t code = 0; code < 1u << format.bits(); ++code) {
      const double value = decode(format, code);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(decode(format, encode(format, value, {.saturate = true})))) << code;
        EXPECT_EQ(std::signbit(value), format.specials != Specials::kNanAsZero && (code & format.sign_bit()) != 0);
      } else
        EXPECT_EQ(encode(format, value, {}), code);
    }
  }
}

TEST(NumericFormat, IntegersAreTwosComplementAndSaturate) {
  const NumericFormat &int4 = format_of(Format::kInt4), &uint4 = format_of(Format::kUInt4);
  EXPECT_EQ(int4.lowest(), -8);
  EXPECT_EQ(int4.largest(), 7);
  EXPECT_EQ(uint4.largest(), 15);
  EXPECT_EQ(format_of(Format::kInt2).lowest(), -2);
  EXPECT_EQ(format_of(Format::kInt32).lowest(), -0x1p31);
  EXPECT_EQ(decode(int4, 0xf), -1);
  EXPECT_EQ(decode(int4, 0x8), -8);
  EXPECT_EQ(encode(int4, -100, {}), 0x8u);
  EXPECT_EQ(encode(int4, 2.5, {}), 2u);
  EXPECT_EQ(encode(int4, 3.5, {}), 4u);
  EXPECT_EQ(encode(uint4, -3, {}), 0u);
  EXPECT_EQ(encode(uint4, NAN, {}), 0u);
}

/// All powers of two, and what lies between them: which power is chosen follows from the words of ONNX's Cast alone.
TEST(NumericFormat, ScalesOfBlocksRoundInTheDirectionAsked) {
  const NumericFormat& format = format_of(Format::kFloat8E8M0);
  using enum Narrowing::Direction;
  const auto of = [&](float x, Narrowing::Direction direction, bool saturate = true) {
    float out;
    std::uint8_t code;
    encode_array(format, &x, &code, 1, {saturate, direction});
    round_array(&x, &out, 1, format, {saturate, direction});
    EXPECT_EQ(code == 0xff ? std::isnan(out) : std::ldexp(1.0f, code - 127) == out, true) << x;
    return static_cast<int>(code);
  };
  for (int e = -126; e < 127; ++e) {
    const float power = std::ldexp(1.0f, e);
    for (float sign : {1.0f, -1.0f}) {
      EXPECT_EQ(of(sign * power, kUp), e + 127);
      EXPECT_EQ(of(sign * power, kDown), e + 127);
      EXPECT_EQ(of(sign * power, kNearest), e + 127);
      EXPECT_EQ(of(sign * power * 1.25f, kUp), e + 128);
      EXPECT_EQ(of(sign * power * 1.75f, kDown), e + 127);
      EXPECT_EQ(of(sign * power * 1.25f, kNearest), e + 127);
      EXPECT_EQ(of(sign * power * 1.5f, kNearest), e + 128) << "ties go up";
      EXPECT_EQ(of(sign * power * 1.75f, kNearest), e + 128);
    }
  }
  EXPECT_EQ(of(0x1p-127f, kUp), 0);
  EXPECT_EQ(of(0x1.8p-127f, kUp), 1);
  for (float small : {0.0f, 1e-45f, 0x1p-128f}) {
    EXPECT_EQ(of(small, kUp), 0);
    EXPECT_EQ(of(small, kNearest, false), 0xff);
  }
  for (float large : {0x1.8p127f, INFINITY}) {
    EXPECT_EQ(of(large, kUp), 0xfe);
    EXPECT_EQ(of(large, kUp, false), 0xff);
    EXPECT_EQ(of(large, kNearest, false), 0xff);
  }
  EXPECT_EQ(of(NAN, kUp), 0xff);
}

TEST(NumericFormat, HoldsTheValuesOfAnother) {
  for (const NumericFormat* wide : floats_of_at_most(16))
    for (const NumericFormat* narrow : floats_of_at_most(8)) {
      bool all = true;
      for (std::uint32_t code = 0; code < 1u << narrow->bits(); ++code) {
        const double value = decode(*narrow, code);
        const double there = decode(*wide, encode(*wide, value, {}));
        all &= there == value || (std::isnan(there) && std::isnan(value));
      }
      EXPECT_EQ(holds(*wide, *narrow), all) << wide->name << " and " << narrow->name;
    }
}

TEST(Codes, PackingIsOnnxs) {
  const auto packed = [](Format id, const std::vector<std::uint8_t>& codes) {
    std::vector<std::uint8_t> bytes(packed_bytes(format_of(id), codes.size())), back(codes.size());
    pack(format_of(id), codes.data(), codes.size(), bytes.data());
    unpack(format_of(id), bytes.data(), codes.size(), back.data());
    EXPECT_EQ(back, codes);
    return bytes;
  };
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(packed(Format::kInt4, {1, 2, 3, 4, 5}), (Bytes{0x21, 0x43, 0x05}));
  EXPECT_EQ(packed(Format::kUInt2, {1, 2, 3, 0, 2}), (Bytes{0b00111001, 0b10}));
  // ONNX: 24 bits for four elements, the first one in the lowest six.
  EXPECT_EQ(packed(Format::kFloat6E3M2, {0x3f, 0, 0x3f, 0, 1}), (Bytes{0x3f, 0xf0, 0x03, 0x01}));
  EXPECT_EQ(packed(Format::kFloat4E2M1, {}), Bytes{});
  EXPECT_EQ(packed(Format::kFloat8E4M3, {7, 0xff}), (Bytes{7, 0xff}));
}

TEST(Codes, ConversionsRoundOnceFromEveryType) {
  // 1 + 2^-4 + 2^-40: just above a tie of E4M3, which a float32 in between would make one.
  const double x = 1.0 + 0x1p-4 + 0x1p-40;
  std::uint8_t code = 0;
  convert_elements(DataType::kFloat64, &x, DataType::kFloat8E4M3, &code, 1);
  EXPECT_EQ(code, 0x39);
  const std::int64_t tie = 272, odd = (std::int64_t{17} << 40) + 1;  // 16.5 and a bit more units of 2^4 (2^36)
  convert_elements(DataType::kInt64, &tie, DataType::kFloat8E4M3, &code, 1);
  EXPECT_EQ(decode(format_of(Format::kFloat8E4M3), code), 256);
  convert_elements(DataType::kInt64, &odd, DataType::kFloat8E8M0, &code, 1, {true, Narrowing::Direction::kUp});
  EXPECT_EQ(code, 127 + 45);
  const std::int32_t integers[] = {-9, -8, 7, 8, 200};
  std::uint8_t codes[5];
  convert_elements(DataType::kInt32, integers, DataType::kInt4, codes, 5);
  std::int64_t wide[5];
  convert_elements(DataType::kInt4, codes, DataType::kInt64, wide, 5);
  EXPECT_EQ((std::vector<std::int64_t>(wide, wide + 5)), (std::vector<std::int64_t>{7, -8, 7, -8, -8}));
  convert_elements(DataType::kInt4, codes, DataType::kFloat8E5M2, &code, 1);
  EXPECT_EQ(decode(format_of(Format::kFloat8E5M2), code), 7);
}

template <typename T>
std::vector<T> converted(DataType from, const void* in, DataType to, std::size_t count) {
  std::vector<T> out(count);
  convert_elements(from, in, to, out.data(), count);
  return out;
}

TEST(Conversions, OfFloatsToIntegersAreThoseOfX86OnEveryProcessor) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // Casts of these in a program for x86-64 give this; for values that are outside of the range, the standard leaves it
  // open.
  const double in[] = {kNan, kInfinity, -kInfinity, 0x1p64, 0x1.8p63, 0x1p63, -1.5, -0x1p63, -0x1p64, 255.75};
  float single[10];
  std::copy(std::begin(in), std::end(in), single);
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  const std::vector<std::uint64_t> expected{kHalf, 0, kHalf, 0, kHalf + kHalf / 2, kHalf, ~0ULL, kHalf, kHalf, 255};
  EXPECT_EQ(converted<std::uint64_t>(DataType::kFloat64, in, DataType::kUInt64, 10), expected);
  EXPECT_EQ(converted<std::uint64_t>(DataType::kFloat32, single, DataType::kUInt64, 10), expected);
  const std::vector<std::int64_t> wide{INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN,
                                       INT64_MIN, -1,        INT64_MIN, INT64_MIN, 255};
  EXPECT_EQ(converted<std::int64_t>(DataType::kFloat64, in, DataType::kInt64, 10), wide);
  EXPECT_EQ(converted<std::int32_t>(DataType::kFloat64, in, DataType::kInt32, 10),
            (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, -1, 0, 0, 255}));
  EXPECT_EQ(converted<std::int8_t>(DataType::kFloat64, in, DataType::kInt8, 10),
            (std::vector<std::int8_t>{0, 0, 0, 0, 0, 0, -1, 0, 0, -1}));
}

TEST(Codes, TensorsHoldOneElementPerByte) {
  const Tensor values = Tensor::of<float>({2, 2}, {0.5f, -6, 100, 2.5f});
  const Tensor fours = values.cast(DataType::kFloat4E2M1);
  EXPECT_EQ(fours.bytes(), 4u);
  EXPECT_EQ(physical_type(fours.type()), DataType::kFloat32);
  const Tensor back = fours.cast(DataType::kFloat32);
  EXPECT_EQ((std::vector<float>(back.values<float>().begin(), back.values<float>().end())),
            (std::vector<float>{0.5f, -6, 6, 2}));
}

}  // namespace
}  // namespace ulpscope
