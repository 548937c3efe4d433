// Rows of reductions, ArgMax and ArgMin, and of the softmax family.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "ops/op_rows.h"

namespace ulpscope::test::reduction_rows {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Axes = std::vector<std::int64_t>;

const Tensor x = f32({2, 2, 2}, {1, -2, 3, 4, -5, 6, 7, 8});
const Tensor positive = f32({2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor none = Tensor(DataType::kFloat32, {2, 0});
const Attribute zero = std::int64_t{0}, one = std::int64_t{1};

/// The logarithm of the sum of e^v over the rows of `positive`.
float log_sum_exp(double a, double b, double c) {
  return static_cast<float>(std::log(std::exp(a) + std::exp(b) + std::exp(c)));
}

/// Softmax over `n` numbers that are `step` apart in memory, starting at each of `starts`.
Tensor softmax_of(const Tensor& t, std::int64_t n, std::int64_t step, const std::vector<std::int64_t>& starts,
                  bool log) {
  Tensor result(DataType::kFloat32, t.shape());
  for (std::int64_t start : starts) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(double{t.data<float>()[start + i * step]});
    for (std::int64_t i = 0; i < n; ++i) {
      const double share = std::exp(double{t.data<float>()[start + i * step]}) / sum;
      result.data<float>()[start + i * step] = static_cast<float>(log ? std::log(share) : share);
    }
  }
  return result;
}

const AddRows rows({
    {"ReduceSum", "last axis", 13, {}, {x, i64({1}, {-1})}, {f32({2, 2, 1}, {-1, 7, 1, 15})}},
    {"ReduceSum",
     "first axis without keepdims",
     11,
     {{"axes", Axes{0}}, {"keepdims", zero}},
     {x},
     {f32({2, 2}, {-4, 4, 10, 12})}},
    {"ReduceSum", "outer axes", 13, {{"keepdims", zero}}, {x, i64({2}, {2, 0})}, {f32({2}, {0, 22})}},
    {"ReduceSum", "all", 13, {{"keepdims", zero}}, {x}, {f32({}, {22})}},
    {"ReduceSum", "no operation", 13, {{"noop_with_empty_axes", one}}, {x, i64({0}, {})}, {x}},
    {"ReduceSum", "no elements", 13, {}, {none, i64({1}, {1})}, {f32({2, 1}, {0, 0})}},
    {"ReduceSum", "integers wrap around", 13, {{"keepdims", zero}}, {i32({2}, {INT32_MAX, 1})}, {i32({}, {INT32_MIN})}},
    {"ReduceMean", "axes are an attribute", 13, {{"axes", Axes{1, 2}}, {"keepdims", zero}}, {x}, {f32({2}, {1.5F, 4})}},
    {"ReduceMean", "axes are an input", 18, {}, {positive, i64({1}, {0})}, {f32({1, 3}, {2.5F, 3.5F, 4.5F})}},
    {"ReduceMean", "integers", 18, {{"keepdims", zero}}, {i64({3}, {1, 2, 5})}, {i64({}, {2})}},
    {"ReduceMax", "middle axis", 13, {{"axes", Axes{1}}}, {x}, {f32({2, 1, 2}, {3, 4, 7, 8})}},
    {"ReduceMax", "NaN wins", 18, {{"keepdims", zero}}, {f32({3}, {1, kNaN, 2})}, {f32({}, {kNaN})}},
    {"ReduceMax", "no elements", 20, {}, {none, i64({1}, {1})}, {f32({2, 1}, {-kInf, -kInf})}},
    {"ReduceMax",
     "bools",
     20,
     {{"keepdims", zero}},
     {b8({2, 2}, {false, true, false, false}), i64({1}, {1})},
     {b8({2}, {true, false})}},
    {"ReduceMin", "middle axis", 13, {{"axes", Axes{1}}}, {x}, {f32({2, 1, 2}, {1, -2, -5, 6})}},
    {"ReduceMin", "no elements", 20, {}, {none, i64({1}, {1})}, {f32({2, 1}, {kInf, kInf})}},
    {"ReduceMin", "bytes", 20, {{"keepdims", zero}}, {u8({3}, {9, 3, 200})}, {u8({}, {3})}},
    {"ReduceProd", "last axis", 18, {}, {positive, i64({1}, {1})}, {f32({2, 1}, {6, 120})}},
    {"ReduceL1", "last axis", 18, {}, {x, i64({1}, {2})}, {f32({2, 2, 1}, {3, 7, 11, 15})}},
    {"ReduceL2",
     "last axis",
     13,
     {{"axes", Axes{2}}},
     {x},
     {f32({2, 2, 1}, {std::sqrt(5.0F), 5, std::sqrt(61.0F), std::sqrt(113.0F)})}},
    {"ReduceLogSum",
     "last axis",
     18,
     {{"keepdims", zero}},
     {positive, i64({1}, {1})},
     {f32({2}, {std::log(6.0F), std::log(15.0F)})}},
    {"ReduceLogSum", "no elements", 18, {}, {none, i64({1}, {1})}, {f32({2, 1}, {-kInf, -kInf})}},
    {"ReduceLogSumExp",
     "last axis",
     18,
     {{"keepdims", zero}},
     {positive, i64({1}, {1})},
     {f32({2}, {log_sum_exp(1, 2, 3), log_sum_exp(4, 5, 6)})}},
    {"ReduceLogSumExp",
     "does not overflow",
     18,
     {{"keepdims", zero}},
     {f32({2}, {1000, 1000})},
     {f32({}, {1000.6931471806F})}},
    {"ReduceLogSumExp",
     "infinities",
     18,
     {{"keepdims", zero}},
     {f32({3, 2}, {-kInf, -kInf, kInf, 1, kNaN, 1}), i64({1}, {1})},
     {f32({3}, {-kInf, kInf, kNaN})}},
    {"ReduceSumSquare", "all", 18, {}, {x}, {f32({1, 1, 1}, {204})}},
    {"ArgMax", "first of equals", 13, {{"axis", one}}, {f32({2, 3}, {1, 4, 4, 7, 2, 7})}, {i64({2, 1}, {1, 0})}},
    {"ArgMax",
     "last of equals",
     12,
     {{"axis", one}, {"keepdims", zero}, {"select_last_index", one}},
     {f32({2, 3}, {1, 4, 4, 7, 2, 7})},
     {i64({2}, {2, 2})}},
    {"ArgMax", "first axis", 13, {{"keepdims", zero}}, {x}, {i64({2, 2}, {0, 1, 1, 1})}},
    {"ArgMax", "first NaN", 13, {{"keepdims", zero}}, {f32({4}, {1, kNaN, 9, kNaN})}, {i64({}, {1})}},
    {"ArgMin",
     "last of equals",
     13,
     {{"axis", std::int64_t{-1}}, {"select_last_index", one}},
     {i32({1, 4}, {2, 1, 1, 3})},
     {i64({1, 1}, {2})}},
    {"ArgMin",
     "first of equals",
     11,
     {{"axis", one}, {"keepdims", zero}},
     {i32({1, 4}, {2, 1, 1, 3})},
     {i64({1}, {1})}},
    {"Softmax", "last axis", 13, {}, {x}, {softmax_of(x, 2, 1, {0, 2, 4, 6}, false)}},
    {"Softmax", "middle axis", 13, {{"axis", one}}, {x}, {softmax_of(x, 2, 2, {0, 1, 4, 5}, false)}},
    {"Softmax", "flattens before opset 13", 11, {{"axis", one}}, {x}, {softmax_of(x, 4, 1, {0, 4}, false)}},
    {"Softmax", "flattens everything", 7, {{"axis", zero}}, {x}, {softmax_of(x, 8, 1, {0}, false)}},
    {"Softmax", "large values and masks", 13, {}, {f32({1, 3}, {10000, 10000, -kInf})}, {f32({1, 3}, {0.5F, 0.5F, 0})}},
    {"LogSoftmax", "first axis", 13, {{"axis", zero}}, {x}, {softmax_of(x, 2, 4, {0, 1, 2, 3}, true)}},
    {"LogSoftmax", "flattens before opset 13", 11, {}, {x}, {softmax_of(x, 4, 1, {0, 4}, true)}},
    {"Hardmax", "last axis", 13, {}, {f32({2, 3}, {1, 3, 3, 5, 2, 1})}, {f32({2, 3}, {0, 1, 0, 1, 0, 0})}},
    {"Hardmax",
     "flattens before opset 13",
     11,
     {{"axis", zero}},
     {f32({2, 3}, {1, 3, 3, 5, 2, 1})},
     {f32({2, 3}, {0, 0, 0, 1, 0, 0})}},
});

// A plain running sum in float32 is off by about 1e-3 relative here.
TEST(Reduction, SumsManyNumbersWithoutLosingDigits) {
  constexpr std::int64_t kCount = 1 << 22;
  Row row{"ReduceSum",   "many", 13, {{"keepdims", zero}}, {generated({kCount}, [](std::int64_t) { return 0.1; })},
          {f32({}, {0})}};
  const double expected = static_cast<double>(kCount) * double{0.1F};
  EXPECT_NEAR(run_row(row)[0].data<float>()[0], expected, 1e-6 * expected);
}

// Axes in front of others are reduced where they lie; behind them, as rows.
TEST(Reduction, GivesTheSameBitsOverAnyAxis) {
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t seed = random();
    std::mt19937 dice(seed);
    const auto size = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(dice); };
    const std::int64_t outer = size(3), length = size(dice() % 2 == 0 ? 9 : 300), inner = size(70);
    const Tensor rows = spread({outer, inner, length}, -1, 2, seed);
    Tensor columns(DataType::kFloat32, {outer, length, inner});
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t l = 0; l < length; ++l)
        for (std::int64_t j = 0; j < inner; ++j)
          columns.data<float>()[(o * length + l) * inner + j] = rows.data<float>()[(o * inner + j) * length + l];
    for (const char* op : {"ReduceSum", "ReduceMean"}) {
      const auto reduced = [&](const Tensor& values, std::int64_t axis) {
        return run_row({op, "", 18, {{"keepdims", zero}}, {values, i64({1}, {axis})}, {f32({}, {0})}})[0];
      };
      const Tensor expected = reduced(rows, 2), actual = reduced(columns, 1);
      ASSERT_EQ(actual.shape(), (Shape{outer, inner}));
      EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), expected.bytes()), 0)
          << op << " over " << length << " of (" << outer << ", " << inner << "), seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ulpscope::test::reduction_rows
