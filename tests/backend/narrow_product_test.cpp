// Products with weights that stay narrow give the bits of those with packed float32 weights: a typed model is held to
// the model that it was made from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/product.h"
#include "core/parallel.h"
#include "formats/stored_elements.h"

namespace ulpscope::cpu {
namespace {

Tensor random_tensor(Shape shape, unsigned seed) {
  Tensor result(DataType::kFloat32, std::move(shape));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = normal(random);
  return result;
}

std::vector<float> run(const Kernel& kernel, const Tensor& a, std::int64_t m, std::int64_t n, int threads) {
  const ScopedThreads scope(threads);
  Tensor out(DataType::kFloat32, {m, n});
  const Tensor* const in = &a;
  Tensor* const to = &out;
  kernel.run({&in, 1}, {&to, 1});
  return {out.data<float>(), out.data<float>() + out.size()};
}

ObjectCache kept() {
  return [](const std::string&, std::function<PreparedObject()> make) -> PreparedSource {
    return [object = make().object] { return object; };
  };
}

struct NarrowCase {
  std::int64_t m, k, n;
};

void expect_bits_of_packed_weights(const NarrowCase& c, DataType type, bool transposed, bool bias, Rounding rounding) {
  SCOPED_TRACE(::testing::Message() << c.m << " x " << c.k << " x " << c.n << ", " << name_of(type)
                                    << (transposed ? ", transposed" : "") << (bias ? ", bias" : ""));
  const Shape shape = transposed ? Shape{c.n, c.k} : Shape{c.k, c.n};
  const Tensor narrow = random_tensor(shape, 1).cast(type), a = random_tensor({c.m, c.k}, 2);
  const Tensor weights = StoredElements::convert(narrow, DataType::kFloat32);
  ASSERT_TRUE(is_stored_narrow(weights));
  MatMulSpec spec{{.m = c.m, .n = c.n, .k = c.k}};
  spec.transpose_b = transposed;
  if (bias) spec.bias = random_tensor({c.n}, 3);
  const auto kernel = make_narrow_matmul_kernel(spec, weights, Rounding::kNone, rounding);
  ASSERT_NE(kernel, nullptr);
  spec.constant_b = [&] {
    Tensor wide = narrow.cast(DataType::kFloat32);
    round_array(wide.data<float>(), wide.data<float>(), static_cast<std::size_t>(wide.size()), rounding);
    return wide;
  };
  spec.key_b = "b";
  const auto packed = make_matmul_kernel(spec, kept());
  const std::vector<float> expected = run(*packed, a, c.m, c.n, 1);
  for (const int threads : {1, 2, 3}) {
    const std::vector<float> actual = run(*kernel, a, c.m, c.n, threads);
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0) << threads << " threads";
  }
}

TEST(NarrowProduct, HasTheBitsOfPackedWeights) {
  if (products_depend_on_threads()) GTEST_SKIP() << "no AVX-512";
  for (const NarrowCase& c : std::vector<NarrowCase>{{1, 512, 512},
                                                     {1, 4096, 1000},
                                                     {2, 768, 3072},
                                                     {7, 3072, 768},
                                                     {16, 1024, 4097},
                                                     {64, 384, 1536},
                                                     {65, 333, 999},
                                                     {128, 1000, 333},
                                                     {300, 11008, 64},
                                                     {3, 20000, 70}})
    for (const bool transposed : {false, true}) {
      expect_bits_of_packed_weights(c, DataType::kFloat16, transposed, false, Rounding::kNone);
      expect_bits_of_packed_weights(c, DataType::kBFloat16, transposed, true, Rounding::kNone);
    }
  expect_bits_of_packed_weights({16, 600, 600}, DataType::kFloat16, false, true, Rounding::kBF16);
}

TEST(NarrowProduct, LeavesOtherWeightsToOthers) {
  MatMulSpec spec{{.m = 4, .n = 512, .k = 512}};
  EXPECT_EQ(make_narrow_matmul_kernel(spec, random_tensor({512, 512}, 1), Rounding::kNone, Rounding::kNone), nullptr);
  const Tensor small = StoredElements::convert(random_tensor({16, 16}, 1).cast(DataType::kFloat16), DataType::kFloat32);
  EXPECT_EQ(make_narrow_matmul_kernel(spec, small, Rounding::kNone, Rounding::kNone), nullptr);
}

}  // namespace
}  // namespace ulpscope::cpu
