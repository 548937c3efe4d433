#include "backend/cpu/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <random>

#include "backend/cpu/program_kernels.h"
#include "backend/seeds.h"
#include "core/parallel.h"

namespace ulpscope::cpu {
namespace {

using I = Instruction;

Tensor random_tensor(Shape shape, float lo, float hi, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(lo, hi);
  Tensor t(DataType::kFloat32, std::move(shape));
  for (std::int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = value(random);
  return t;
}

Tensor run(const Kernel& kernel, std::vector<Tensor> inputs, Shape shape) {
  std::vector<const Tensor*> in;
  for (const Tensor& t : inputs) in.push_back(&t);
  Tensor out(DataType::kFloat32, std::move(shape));
  Tensor* o = &out;
  kernel.run(in, {&o, 1});
  return out;
}

TEST(Program, AddsWithBroadcastInBothDirections) {
  const Tensor a = random_tensor({37, 19}, -1, 1, 1), b = random_tensor({19}, -1, 1, 2),
               c = random_tensor({37, 1}, -1, 1, 3);
  ProgramBuilder p({37, 19});
  const int x = p.input({19, 1}, Rounding::kNone), y = p.input({0, 1}, Rounding::kNone),
            z = p.input({1, 0}, Rounding::kNone);
  p.output(p.apply(I::kMul, p.apply(I::kAdd, x, y), z), Rounding::kNone);
  const Tensor out = run(*p.finish(), {a, b, c}, {37, 19});
  for (int i = 0; i < 37; ++i)
    for (int j = 0; j < 19; ++j)
      EXPECT_EQ(out.data<float>()[i * 19 + j], (a.data<float>()[i * 19 + j] + b.data<float>()[j]) * c.data<float>()[i]);
}

TEST(Program, RoundsWhatItLoadsAndStores) {
  const Tensor a = Tensor::of<float>({3}, {1.0f + 0x1p-12f, 65519.0f, 65520.0f});
  ProgramBuilder p({3});
  p.output(p.apply(I::kCopy, p.input({1}, Rounding::kF16)), Rounding::kNone);
  const Tensor out = run(*p.finish(), {a}, {3});
  EXPECT_EQ(out.data<float>()[0], 1.0f);
  EXPECT_EQ(out.data<float>()[1], 65504.0f);
  EXPECT_TRUE(std::isinf(out.data<float>()[2]));
}

TEST(Program, NormalizesRows) {
  const Tensor a = random_tensor({50, 384}, -3, 5, 4);
  ProgramBuilder p({50, 384}, 1);
  const int x = p.input({384, 1}, Rounding::kNone);
  const int d = p.apply(I::kSub, x, p.apply(I::kReduceMean, x));
  const int v = p.apply(I::kDiv, p.apply(I::kReduceSumSquare, d), p.constant(384));
  p.output(p.apply(I::kMul, d, p.apply(I::kRsqrt, v)), Rounding::kNone);
  const Tensor out = run(*p.finish(), {a}, {50, 384});
  for (int r = 0; r < 50; ++r) {
    double mean = 0, square = 0;
    for (int c = 0; c < 384; ++c) mean += out.data<float>()[r * 384 + c];
    for (int c = 0; c < 384; ++c) square += std::pow(out.data<float>()[r * 384 + c], 2);
    EXPECT_NEAR(mean / 384, 0, 1e-5);
    EXPECT_NEAR(square / 384, 1, 1e-4);
  }
}

TEST(Program, HandsOutOneValuePerRow) {
  const Tensor a = random_tensor({7, 2, 33}, -3, 5, 5);
  ProgramBuilder p({7, 2, 33}, 2);
  p.output(p.apply(I::kReduceMax, p.input({66, 33, 1}, Rounding::kNone)), Rounding::kNone);
  const Tensor out = run(*p.finish(), {a}, {7});
  for (int r = 0; r < 7; ++r) {
    float expected = -1e9f;
    for (int c = 0; c < 66; ++c) expected = std::max(expected, a.data<float>()[r * 66 + c]);
    EXPECT_EQ(out.data<float>()[r], expected);
  }
}

struct UnaryRow {
  const char* name;
  Instruction instruction;
  double (*reference)(double);
  float lo, hi;
  double ulps;  ///< Seen: at most 60 % of this on all three instruction sets.
  float p = 0;
};

class UnaryAccuracy : public testing::TestWithParam<UnaryRow> {};

TEST_P(UnaryAccuracy, IsWithinAFewUlps) {
  const UnaryRow row = GetParam();
  const Tensor a = random_tensor({20011}, row.lo, row.hi, 6);
  ProgramBuilder p({20011});
  p.output(p.apply(row.instruction, p.input({1}, Rounding::kNone), -1, row.p, row.p), Rounding::kNone);
  const Tensor out = run(*p.finish(), {a}, {20011});
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double expected = row.reference(static_cast<double>(a.data<float>()[i]));
    const double ulp = std::max(std::ldexp(1.0, std::ilogb(std::max(std::fabs(expected), 1e-37)) - 23), 1e-44);
    ASSERT_LE(std::fabs(static_cast<double>(out.data<float>()[i]) - expected), row.ulps * ulp)
        << row.name << "(" << a.data<float>()[i] << ")";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, UnaryAccuracy,
    testing::Values(
        UnaryRow{"exp", I::kExp, [](double x) { return std::exp(x); }, -86, 88, 3},
        UnaryRow{"erf", I::kErf, [](double x) { return std::erf(x); }, -5, 5, 6},
        UnaryRow{"tanh", I::kTanh, [](double x) { return std::tanh(x); }, -10, 10, 6},
        UnaryRow{"sigmoid", I::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -30, 30, 6},
        UnaryRow{"elu", I::kElu, [](double x) { return std::expm1(x); }, -30, -1e-6f, 4, 1},
        UnaryRow{"elu_small", I::kElu, [](double x) { return std::expm1(x); }, -0.5f, -1e-30f, 4, 1},
        UnaryRow{"selu", I::kSelu, [](double x) { return x > 0 ? x : std::expm1(x); }, -20, 3, 4, 1},
        UnaryRow{"celu", I::kCelu, [](double x) { return x > 0 ? x : std::expm1(x); }, -20, 100, 4, 1},
        UnaryRow{"softplus", I::kSoftplus, [](double x) { return std::log1p(std::exp(x)); }, -80, 80, 6},
        UnaryRow{"softplus_small", I::kSoftplus, [](double x) { return std::log1p(std::exp(x)); }, -3, 3, 6},
        UnaryRow{"mish", I::kMish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -80, 30, 8},
        UnaryRow{"sqrt", I::kSqrt, [](double x) { return std::sqrt(x); }, 0, 1e6f, 1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Program, KeepsInfinitiesAndNan) {
  const float inf = INFINITY, nan = NAN;
  const Tensor a = Tensor::of<float>({5}, {inf, -inf, nan, 0.0f, 200.0f});
  const auto apply = [&](Instruction i) {
    ProgramBuilder p({5});
    p.output(p.apply(i, p.input({1}, Rounding::kNone)), Rounding::kNone);
    return run(*p.finish(), {a}, {5});
  };
  const Tensor e = apply(I::kExp), t = apply(I::kTanh), r = apply(I::kRelu), f = apply(I::kErf);
  EXPECT_EQ(e.data<float>()[0], inf);
  EXPECT_EQ(e.data<float>()[1], 0.0f);
  EXPECT_TRUE(std::isnan(e.data<float>()[2]));
  EXPECT_EQ(e.data<float>()[4], inf);
  EXPECT_EQ(t.data<float>()[0], 1.0f);
  EXPECT_EQ(t.data<float>()[1], -1.0f);
  EXPECT_TRUE(std::isnan(t.data<float>()[2]));
  EXPECT_TRUE(std::isnan(r.data<float>()[2]));
  EXPECT_EQ(f.data<float>()[0], 1.0f);
  EXPECT_TRUE(std::isnan(f.data<float>()[2]));
}

TEST(Program, GivesTheSameBitsForEveryNumberOfThreads) {
  const Tensor a = random_tensor({513, 700}, -3, 5, 8);
  const auto compute = [&](int threads) {
    set_num_threads(threads);
    ProgramBuilder p({513, 700}, 1);
    const int x = p.input({700, 1}, Rounding::kNone);
    const int e = p.apply(I::kExp, p.apply(I::kSub, x, p.apply(I::kReduceMax, x)));
    p.output(p.apply(I::kDiv, e, p.apply(I::kReduceSum, e)), Rounding::kF16);
    return run(*p.finish(), {a}, {513, 700});
  };
  const Tensor one = compute(1);
  for (int threads : {2, 4}) {
    const Tensor many = compute(threads);
    EXPECT_TRUE(std::equal(one.values<float>().begin(), one.values<float>().end(), many.values<float>().begin()));
  }
  set_num_threads(0);
}

/// Numbers around the steps of q = round(x / scale), and others.
std::vector<float> numbers_for(float scale, std::mt19937& random) {
  std::vector<float> result{0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45f, -1e-45f};
  for (int half = -516; half <= 516; ++half) {
    float x = static_cast<float>(half) * 0.5f * scale;
    for (int i = 0; i < 3; ++i) x = std::nextafter(x, -INFINITY);
    for (int i = 0; i < 7; ++i, x = std::nextafter(x, INFINITY)) result.push_back(x);
  }
  std::uniform_real_distribution<float> value(-300, 300);
  for (int i = 0; i < 1000; ++i) result.push_back(value(random) * scale);
  std::ranges::shuffle(result, random);
  return result;
}

TEST(Program, QuantizesAsADivisionDoes) {
  const std::uint32_t seed = sweeps::seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-20, 20), wide(-100, 120);
  for (int round = 0; round < 60; ++round) {
    const float scale =
        round < 2 ? (round == 0 ? 1.0f : 0.1f) : std::exp2(round % 3 == 0 ? wide(random) : exponent(random));
    const bool is_unsigned = round % 2 == 1;
    const std::int32_t zero = round % 4 < 2 ? 0 : std::uniform_int_distribution(is_unsigned ? 0 : -128, 127)(random);
    const std::vector<float> numbers = numbers_for(scale, random);
    const auto count = static_cast<std::int64_t>(numbers.size());
    ProgramBuilder p({count});
    const int x = p.input({1}, Rounding::kNone);
    p.output(p.apply(I::kFakeQuantize, x, -1, scale, is_unsigned ? 1.0f : 0.0f), Rounding::kNone);
    p.output_integers(x, {to_bytes(scale, is_unsigned), zero});
    p.output_integers(x, {to_bytes(scale, is_unsigned), 0, true});
    Tensor in(DataType::kFloat32, {count}), values(DataType::kFloat32, {count}), integers(DataType::kFloat32, {count}),
        bytes(is_unsigned ? DataType::kUInt8 : DataType::kInt8, {count});
    std::ranges::copy(numbers, in.data<float>());
    const Tensor* const ins[] = {&in};
    Tensor* const outs[] = {&values, &bytes, &integers};
    p.finish()->run(ins, outs);
    for (std::int64_t i = 0; i < count; ++i) {
      const float quotient = numbers[static_cast<std::size_t>(i)] / scale;
      const float whole = std::isnan(quotient) ? 0.0f : std::nearbyint(quotient);
      const float least = is_unsigned ? 0.0f : -128.0f, most = least + 255.0f;
      const float integer = std::clamp(whole, least, most);
      const float expected = integer * scale + 0.0f;  // No negative zero.
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values.data<float>()[i]), std::bit_cast<std::uint32_t>(expected))
          << numbers[static_cast<std::size_t>(i)] << " / " << scale;
      const int byte = is_unsigned ? bytes.data<std::uint8_t>()[i] : bytes.data<std::int8_t>()[i];
      ASSERT_EQ(byte, static_cast<int>(std::clamp(whole + static_cast<float>(zero), least, most)))
          << numbers[static_cast<std::size_t>(i)] << " / " << scale << " + " << zero;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(integers.data<float>()[i]), std::bit_cast<std::uint32_t>(integer + 0.0f))
          << numbers[static_cast<std::size_t>(i)] << " / " << scale;
    }
  }
}

TEST(Program, WritesAnOutputInThePlaceOfAnInput) {
  const Tensor a = random_tensor({5, 7, 40}, -3, 3, 9), b = random_tensor({40}, -1, 1, 10);
  ProgramBuilder p({5, 7, 40});
  const int x = p.input({280, 40, 1}, Rounding::kNone), y = p.input({0, 0, 1}, Rounding::kNone);
  const int sum = p.apply(I::kAdd, x, y), product = p.apply(I::kMul, p.apply(I::kRelu, sum), x);
  p.output(sum, Rounding::kNone);
  p.output(product, Rounding::kNone);
  for (int place = 0; place < 2; ++place) {
    Tensor in = a.clone(), other(DataType::kFloat32, {5, 7, 40});
    const Tensor* const ins[] = {&in, &b};
    Tensor* const outs[] = {place == 0 ? &in : &other, place == 0 ? &other : &in};
    p.finish()->run(ins, outs);
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const float expected = a.data<float>()[i] + b.data<float>()[i % 40];
      ASSERT_EQ(outs[0]->data<float>()[i], expected) << place;
      ASSERT_EQ(outs[1]->data<float>()[i], std::max(expected, 0.0f) * a.data<float>()[i]) << place;
    }
  }
}

}  // namespace
}  // namespace ulpscope::cpu
