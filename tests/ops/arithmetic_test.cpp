// Rows of the arithmetic operators with two or more inputs, and of running sums.
#include <limits>

#include "ops/op_rows.h"

namespace ulpscope::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kLowest64 = std::numeric_limits<std::int64_t>::lowest();

const Tensor a = f32({2, 3}, {1, -2, 3, 4, 5, -6});
const Tensor row = f32({3}, {10, 20, 0.5F});
const Tensor column = f32({2, 1}, {2, -1});
const Tensor x = spread({4, 5, 7}, -3, 3, 1), y = spread({4, 5, 7}, 0.5, 4, 2);

const AddRows rows({
    {"Add", "broadcasts", 14, {}, {a, row}, {f32({2, 3}, {11, 18, 3.5F, 14, 25, -5.5F})}},
    {"Add", "wraps around", 14, {}, {i32({2}, {INT32_MAX, 1}), i32({}, {1})}, {i32({2}, {INT32_MIN, 2})}},
    {"Add", "float16 arrives as float32", 14, {}, {f16({2}, {65504, 1}), f16({}, {0.5F})}, {f16({2}, {65504, 1.5F})}},
    {"Add", "no elements", 14, {}, {Tensor(DataType::kFloat32, {0, 3}), row}, {Tensor(DataType::kFloat32, {0, 3})}},
    {"Sub", "broadcasts", 14, {}, {a, row}, {f32({2, 3}, {-9, -22, 2.5F, -6, -15, -6.5F})}},
    {"Sub", "wraps around", 14, {}, {u8({2}, {1, 9}), u8({2}, {2, 4})}, {u8({2}, {255, 5})}},
    {"Mul", "broadcasts both ways", 14, {}, {column, row}, {f32({2, 3}, {20, 40, 1, -10, -20, -0.5F})}},
    {"Mul", "wraps around", 14, {}, {i8({2}, {100, -128}), i8({2}, {3, -1})}, {i8({2}, {44, -128})}},
    {"Mul",
     "wide 16 bit",
     14,
     {},
     {Tensor::of<std::uint16_t>({1}, {65535}), Tensor::of<std::uint16_t>({1}, {65535})},
     {Tensor::of<std::uint16_t>({1}, {1})}},
    {"Div", "floats", 14, {}, {x, y}, {mapped(x, y, [](double p, double q) { return p / q; })}},
    {"Div", "by zero", 7, {}, {f32({3}, {1, -1, 0}), f32({}, {0})}, {f32({3}, {kInf, -kInf, kNaN})}},
    {"Div",
     "integers truncate",
     14,
     {},
     {i32({4}, {7, -7, INT32_MIN, 5}), i32({4}, {2, 2, -1, 0})},
     {i32({4}, {3, -3, INT32_MIN, 0})}},
    {"Pow", "floats", 15, {}, {y, x}, {mapped(y, x, [](double p, double q) { return std::pow(p, q); })}},
    {"Pow", "integer exponent", 15, {}, {f32({3}, {2, -3, 0.5F}), i64({3}, {10, 3, -2})}, {f32({3}, {1024, -27, 4})}},
    {"Pow",
     "integer base",
     15,
     {},
     {i32({4}, {2, -3, -1, 2}), i32({4}, {10, 3, -3, -1})},
     {i32({4}, {1024, -27, -1, 0})}},
    {"Pow",
     "integer base and float exponent",
     15,
     {},
     {i64({3}, {9, 2, 10}), f32({3}, {0.5F, 3, 30})},
     {i64({3}, {3, 8, std::numeric_limits<std::int64_t>::max()})}},
    {"Mod",
     "sign of the divisor",
     13,
     {},
     {i32({6}, {-4, 7, 5, 4, -7, 8}), i32({6}, {2, -3, 8, -2, 3, 0})},
     {i32({6}, {0, -2, 5, 0, 2, 0})}},
    {"Mod", "lowest and -1", 13, {}, {i64({1}, {kLowest64}), i64({1}, {-1})}, {i64({1}, {0})}},
    {"Mod",
     "sign of the dividend",
     13,
     {{"fmod", std::int64_t{1}}},
     {f32({4}, {-4.3F, 7.2F, 5, kInf}), f32({4}, {2.1F, -3.4F, 8, 2})},
     {f32({4}, {-0.1F, 0.4F, 5, kNaN})}},
    {"Mod",
     "floats with the sign of the divisor",
     28,
     {},
     {f32({4}, {-4.3F, 7.2F, -1, 0}), f32({4}, {2.1F, -3.4F, kInf, 2})},
     {f32({4}, {2, -3, kInf, 0})}},
    {"Max", "broadcasts three", 13, {}, {a, row, column}, {f32({2, 3}, {10, 20, 3, 10, 20, 0.5F})}},
    {"Max", "NaN wins", 13, {}, {f32({2}, {kNaN, 1}), f32({2}, {1, kNaN})}, {f32({2}, {kNaN, kNaN})}},
    {"Max", "one input", 8, {}, {i64({2}, {3, -1})}, {i64({2}, {3, -1})}},
    {"Min", "broadcasts three", 13, {}, {a, row, column}, {f32({2, 3}, {1, -2, 0.5F, -1, -1, -6})}},
    {"Min", "NaN wins", 13, {}, {f32({2}, {kNaN, 1}), f32({2}, {1, kNaN})}, {f32({2}, {kNaN, kNaN})}},
    {"Sum", "broadcasts three", 13, {}, {a, row, column}, {f32({2, 3}, {13, 20, 5.5F, 13, 24, -6.5F})}},
    {"Mean", "broadcasts", 13, {}, {a, column}, {f32({2, 3}, {1.5F, 0, 2.5F, 1.5F, 2, -3.5F})}},
    {"CumSum", "along rows", 14, {}, {a, i32({}, {1})}, {f32({2, 3}, {1, -1, 2, 4, 9, 3})}},
    {"CumSum",
     "exclusive reverse along columns",
     11,
     {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}},
     {a, i64({1}, {-2})},
     {f32({2, 3}, {4, 5, -6, 0, 0, 0})}},
    {"CumProd", "along rows", 26, {}, {a, i64({}, {-1})}, {f32({2, 3}, {1, -2, -6, 4, 20, -120})}},
    {"CumProd",
     "exclusive reverse",
     26,
     {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}},
     {i32({4}, {2, 3, 4, 5}), i32({}, {0})},
     {i32({4}, {60, 20, 5, 1})}},
    {"SwiGLU",
     "alpha",
     28,
     {{"alpha", 1.5F}},
     {x, y},
     {mapped(x, y, [](double gate, double value) { return gate / (1 + std::exp(-1.5 * gate)) * value; })}},
    {"BiasGelu",
     "bias along rows",
     1,
     {},
     {a, row},
     {mapped(f32({2, 3}, {11, 18, 3.5F, 14, 25, -5.5F}),
             [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); })},
     1e-6,
     "com.microsoft"},
});

}  // namespace
}  // namespace ulpscope::test
