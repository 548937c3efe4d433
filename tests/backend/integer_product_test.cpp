// Our own product of 8-bit integers, held against sums of 64 bits: every small shape, the largest numbers, sums in
// several pieces, and batches; what lies beside the results stays as it is.
#include "backend/cpu/integer_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using Index = std::int64_t;

struct IntegerCase {
  Index m, k, n;
  bool is_unsigned = false, transpose_b = false, extreme = false;
  std::vector<Index> batch_a{}, batch_b{};

  std::string text() const {
    return std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n) + (is_unsigned ? ", uint8" : "") +
           (transpose_b ? ", b transposed" : "") + (extreme ? ", the largest" : "") + ", batches " +
           ::testing::PrintToString(batch_a) + " " + ::testing::PrintToString(batch_b);
  }
};

Index count_of(const std::vector<Index>& batch) {
  Index count = 1;
  for (const Index each : batch) count *= each;
  return count;
}

/// Between -128 and 127, or 0 and 255: of bytes, whose type says which.
std::vector<std::uint8_t> bytes_of(Index count, unsigned seed, bool extreme) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& byte : bytes) byte = extreme ? (seed == 1 ? 0xff : 0x80) : static_cast<std::uint8_t>(random());
  return bytes;
}

void expect_exact(const IntegerCase& c, int threads) {
  const Index matrices_a = count_of(c.batch_a), matrices_b = count_of(c.batch_b);
  const std::vector<std::uint8_t> a = bytes_of(matrices_a * c.m * c.k, 1, c.extreme);
  const std::vector<std::uint8_t> b = bytes_of(matrices_b * c.k * c.n, 2, c.extreme);
  MatMulSpec spec;
  spec.m = c.m;
  spec.k = c.k;
  spec.n = c.n;
  spec.transpose_b = c.transpose_b;
  spec.batch_a = c.batch_a;
  spec.batch_b = c.batch_b;
  spec.type_a = c.is_unsigned ? DataType::kUInt8 : DataType::kInt8;
  spec.type_b = DataType::kInt8;
  spec.key_b = "b";
  spec.constant_b = [&] {
    return Tensor::borrow(DataType::kInt8, {matrices_b * c.k * c.n}, const_cast<std::uint8_t*>(b.data()), nullptr);
  };
  const ScopedThreads use(threads);
  const auto kernel = make_integer_matmul_kernel(spec, [](const std::string&, auto make) -> PreparedSource {
    return [object = make().object] { return object; };
  });
  const Index matrices = std::max(matrices_a, matrices_b), count = matrices * c.m * c.n;
  constexpr float kPoison = -7;
  std::vector<float> out(static_cast<std::size_t>(count + 64), kPoison);
  const Tensor x = Tensor::borrow(spec.type_a, {matrices_a * c.m * c.k}, const_cast<std::uint8_t*>(a.data()), nullptr);
  Tensor y = Tensor::borrow(DataType::kFloat32, {count}, out.data(), nullptr);
  const Tensor* const in = &x;
  Tensor* const to = &y;
  kernel->run({&in, 1}, {&to, 1});
  for (Index matrix = 0; matrix < matrices; ++matrix)
    for (Index r = 0; r < c.m; ++r)
      for (Index column = 0; column < c.n; ++column) {
        const std::uint8_t* const row = a.data() + ((matrix % matrices_a) * c.m + r) * c.k;
        const std::uint8_t* const of = b.data() + (matrix % matrices_b) * c.k * c.n;
        Index sum = 0;
        for (Index i = 0; i < c.k; ++i) {
          const Index left = c.is_unsigned ? row[i] : static_cast<std::int8_t>(row[i]);
          sum += left * static_cast<std::int8_t>(of[c.transpose_b ? column * c.k + i : i * c.n + column]);
        }
        ASSERT_EQ(out[static_cast<std::size_t>((matrix * c.m + r) * c.n + column)], static_cast<float>(sum))
            << c.text() << ", matrix " << matrix << ", row " << r << ", column " << column;
      }
  for (std::size_t i = static_cast<std::size_t>(count); i < out.size(); ++i) ASSERT_EQ(out[i], kPoison) << c.text();
}

TEST(IntegerProduct, IsExactForEverySmallShape) {
  if (!multiplies_integers(1)) GTEST_SKIP() << "no loops for integers here";
  for (Index m = 1; m <= 8; ++m)
    for (const Index k : {1, 2, 3, 7, 8, 17})
      for (Index n = 1; n <= 35; ++n)
        for (const bool transpose_b : {false, true})
          expect_exact({m, k, n, (m + k + n) % 2 == 0, transpose_b}, 1 + static_cast<int>(n % 2));
}

TEST(IntegerProduct, IsExactForLongSums) {
  if (!multiplies_integers(1)) GTEST_SKIP() << "no loops for integers here";
  for (const Index k : {1023, 1024, 1025, 1026, 2049, 65535})
    for (const bool is_unsigned : {false, true})
      for (const bool extreme : {false, true}) {
        ASSERT_TRUE(multiplies_integers(k));
        expect_exact({7, k, 19, is_unsigned, false, extreme}, 2);
        expect_exact({1, k, 16, is_unsigned, true, extreme}, 1);
      }
  EXPECT_FALSE(multiplies_integers(1 << 17));
}

TEST(IntegerProduct, IsExactForBatchesAndManyThreads) {
  if (!multiplies_integers(1)) GTEST_SKIP() << "no loops for integers here";
  for (const int threads : {1, 2, 3, 8}) {
    expect_exact({5, 12, 20, true, false, false, {3}, {3}}, threads);
    expect_exact({5, 12, 20, false, true, false, {3}, {1}}, threads);
    expect_exact({60, 130, 70, false, true, false, {1}, {1}}, threads);
    expect_exact({200, 33, 17, true}, threads);
    expect_exact({3, 64, 500, true}, threads);
  }
}

}  // namespace
}  // namespace ulpscope::cpu
