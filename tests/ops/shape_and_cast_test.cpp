// Rows of the operators that convert, describe or make tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/op_rows.h"
#include "ulpscope/error.h"

namespace ulpscope::test::shape_and_cast_rows {
namespace {

constexpr std::int64_t kFloat = 1, kUInt8 = 2, kInt16 = 5, kInt32 = 6, kInt64 = 7, kString = 8, kBool = 9,
                       kFloat16 = 10, kDouble = 11, kBFloat16 = 16;
const float kInfinity = std::numeric_limits<float>::infinity();
const Tensor m = f32({2, 3}, {1, 2, 3, 4, 5, 6});

std::map<std::string, Attribute> to(std::int64_t type) { return {{"to", type}}; }

const AddRows rows({
    {"Cast",
     "float to float16",
     13,
     to(kFloat16),
     {f32({4}, {0.1F, 65519, 65520, 1e-8F})},
     {f16({4}, {0.1F, 65504, kInfinity, 0})},
     0},
    // 1 + 2^-11 + 2^-40 is above the tie of float16, but float32 would drop the last term and round to even.
    {"Cast",
     "double to float16 once",
     13,
     to(kFloat16),
     {f64({2}, {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11})},
     {f16({2}, {1 + 0x1p-10F, 1})},
     0},
    {"Cast",
     "int64 to bfloat16 once",
     13,
     to(kBFloat16),
     {i64({1}, {(std::int64_t{1} << 40) + (std::int64_t{1} << 32) + 1})},
     {bf16({1}, {0x1p40F + 0x1p33F})},
     0},
    {"Cast", "float16 to double", 9, to(kDouble), {f16({1}, {0.1F})}, {f64({1}, {0.0999755859375})}, 0},
    {"Cast", "truncates", 13, to(kInt32), {f32({3}, {2.9F, -2.9F, 0})}, {i32({3}, {2, -2, 0})}},
    {"Cast", "drops high bits", 13, to(kUInt8), {i64({2}, {257, -1})}, {u8({2}, {1, 255})}},
    {"Cast", "to bool", 13, to(kBool), {f32({3}, {0, -0.0F, 0.5F})}, {b8({3}, {false, false, true})}},
    {"Cast", "from bool", 13, to(kFloat), {b8({2}, {false, true})}, {f32({2}, {0, 1})}},
    {"CastLike", "takes the second type", 15, {}, {f32({2}, {1.5F, -1}), i64({0}, {})}, {i64({2}, {1, -1})}},
    {"BitCast", "float to int", 26, to(kInt32), {f32({2}, {1, -2})}, {i32({2}, {0x3f800000, INT32_MIN + 0x40000000})}},
    {"BitCast", "to float16", 26, to(kFloat16), {Tensor::of<std::int16_t>({1}, {0x3c00})}, {f16({1}, {1})}, 0},
    {"Shape", "all", 13, {}, {m}, {i64({2}, {2, 3})}},
    {"Shape", "part", 15, {{"start", std::int64_t{-1}}, {"end", std::int64_t{9}}}, {m}, {i64({1}, {3})}},
    {"Shape", "nothing", 15, {{"start", std::int64_t{2}}, {"end", std::int64_t{1}}}, {m}, {i64({0}, {})}},
    {"Size", "counts", 13, {}, {m}, {i64({}, {6})}},
    {"ConstantOfShape", "zeros", 9, {}, {i64({2}, {1, 2})}, {f32({1, 2}, {0, 0})}},
    {"ConstantOfShape", "a float16 value", 9, {{"value", f16({1}, {0.1F})}}, {i64({0}, {})}, {f16({}, {0.1F})}, 0},
    {"ConstantOfShape", "nothing", 9, {{"value", i32({1}, {7})}}, {i64({2}, {0, 4})}, {i32({0, 4}, {})}},
    {"Range", "float", 11, {}, {f32({}, {1}), f32({}, {2}), f32({}, {0.3F})}, {f32({4}, {1, 1.3F, 1.6F, 1.9F})}, 1e-6},
    {"Range", "down", 11, {}, {i32({}, {10}), i32({}, {4}), i32({}, {-3})}, {i32({2}, {10, 7})}},
    {"Range", "empty", 11, {}, {i64({}, {3}), i64({}, {3}), i64({}, {1})}, {i64({0}, {})}},
    {"Range",
     "across the whole of int64",
     11,
     {},
     {i64({}, {INT64_MIN}), i64({}, {INT64_MAX}), i64({}, {INT64_MAX})},
     {i64({3}, {INT64_MIN, -1, INT64_MAX - 1})}},
    {"EyeLike", "the input's type", 9, {}, {m}, {f32({2, 3}, {1, 0, 0, 0, 1, 0})}},
    {"EyeLike",
     "dtype and k",
     22,
     {{"dtype", kInt16}, {"k", std::int64_t{-1}}},
     {f32({2, 2}, {0, 0, 0, 0})},
     {Tensor::of<std::int16_t>({2, 2}, {0, 0, 1, 0})}},
    // numpy.random.RandomState(7).uniform(-1, 1, 3), .RandomState(7).normal(1, 2, 3)
    {"RandomUniform",
     "as NumPy",
     7,
     {{"seed", 7.0F}, {"low", -1.0F}, {"shape", std::vector<std::int64_t>{3}}},
     {},
     {f32({3}, {-0.84738344F, 0.55983758F, -0.12318154F})},
     1e-7},
    {"RandomNormal",
     "as NumPy",
     22,
     {{"seed", 7.0F}, {"mean", 1.0F}, {"scale", 2.0F}, {"dtype", kDouble}, {"shape", std::vector<std::int64_t>{3}}},
     {},
     {f64({3}, {4.3810514, 0.06812526, 1.06564032})},
     1e-7},
    {"RandomUniformLike",
     "shape and dtype",
     22,
     {{"seed", 7.0F}, {"low", -1.0F}, {"dtype", kFloat}},
     {i32({3}, {0, 0, 0})},
     {f32({3}, {-0.84738344F, 0.55983758F, -0.12318154F})},
     1e-7},
    {"RandomNormalLike",
     "shape",
     7,
     {{"seed", 7.0F}, {"mean", 1.0F}, {"scale", 2.0F}},
     {f32({1, 3}, {0, 0, 0})},
     {f32({1, 3}, {4.3810514F, 0.06812526F, 1.06564032F})},
     1e-7},
    // The draws are 0.0763, 0.7799, 0.4384.
    {"Bernoulli",
     "compares with the draws",
     15,
     {{"seed", 7.0F}, {"dtype", kBool}},
     {f32({3}, {0.077F, 0.779F, 0.44F})},
     {b8({3}, {true, false, true})}},
    {"Bernoulli", "certain", 22, {}, {f64({2}, {0, 1})}, {f64({2}, {0, 1})}},
    // Probabilities 0.5, 0.25, 0.25, as logarithms with an offset.
    {"Multinomial",
     "draws from the cumulative sums",
     7,
     {{"seed", 7.0F}, {"sample_size", std::int64_t{3}}, {"dtype", kInt64}},
     {f32({1, 3}, {std::log(2.0F) + 5, 5, 5})},
     {i64({1, 3}, {0, 2, 0})}},
});

const std::vector<Row> kWrong = {
    {"Cast", "string", 13, to(kString), {m}, {m}},
    {"Cast", "unknown type", 13, to(99), {m}, {m}},
    {"Cast", "no type", 13, {}, {m}, {m}},
    {"BitCast", "size", 26, to(kInt64), {m}, {m}},
    {"ConstantOfShape", "negative", 9, {}, {i64({1}, {-1})}, {m}},
    {"ConstantOfShape", "two values", 9, {{"value", f32({2}, {1, 2})}}, {i64({1}, {1})}, {m}},
    {"Range", "delta 0", 11, {}, {f32({}, {1}), f32({}, {2}), f32({}, {0})}, {m}},
    {"Range", "infinite", 11, {}, {f32({}, {1}), f32({}, {kInfinity}), f32({}, {1})}, {m}},
    {"Range", "too long", 11, {}, {i64({}, {INT64_MIN}), i64({}, {INT64_MAX}), i64({}, {1})}, {m}},
    {"EyeLike", "rank", 9, {}, {f32({1}, {1})}, {m}},
    {"RandomUniform", "an integer type", 7, {{"dtype", kInt32}, {"shape", std::vector<std::int64_t>{3}}}, {}, {m}},
};

TEST(ShapesAndCasts, RefuseWhatDoesNotFit) {
  for (const Row& row : kWrong) EXPECT_THROW(run_row(row), Error) << row.op << " (" << row.label << ")";
}

TEST(Random, UnseededLayersRepeatThemselves) {
  const Row row{"RandomNormal", "", 7, {{"shape", std::vector<std::int64_t>{5}}}, {}, {f32({5}, {0, 0, 0, 0, 0})}};
  const std::vector<Tensor> first = run_row(row), second = run_row(row);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(first[0].data<float>()[i], second[0].data<float>()[i]);
}

}  // namespace
}  // namespace ulpscope::test::shape_and_cast_rows
