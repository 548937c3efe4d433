// Rows of comparisons, logic, bits and selection.
#include <limits>

#include "ops/op_rows.h"

namespace ulpscope::test::logic_rows {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const Tensor p = f32({4}, {1, 2, 3, kNaN}), q = f32({4}, {2, 2, 2, 2});
const Tensor s = b8({2, 1}, {true, false}), t = b8({2}, {true, false});
const Tensor special = f32({4}, {-kInf, kInf, kNaN, 1});

const AddRows rows({
    {"Equal", "floats", 19, {}, {p, q}, {b8({4}, {false, true, false, false})}},
    {"Equal", "bools broadcast", 13, {}, {s, t}, {b8({2, 2}, {true, false, false, true})}},
    {"Less", "floats", 13, {}, {p, q}, {b8({4}, {true, false, false, false})}},
    {"Less", "unsigned", 13, {}, {u8({2}, {200, 3}), u8({}, {100})}, {b8({2}, {false, true})}},
    {"LessOrEqual", "floats", 16, {}, {p, q}, {b8({4}, {true, true, false, false})}},
    {"Greater", "floats", 13, {}, {p, q}, {b8({4}, {false, false, true, false})}},
    {"Greater", "float16", 13, {}, {f16({2}, {1, 3}), f16({}, {2})}, {b8({2}, {false, true})}},
    {"GreaterOrEqual", "floats", 16, {}, {p, q}, {b8({4}, {false, true, true, false})}},
    {"And", "broadcasts", 7, {}, {s, t}, {b8({2, 2}, {true, false, false, false})}},
    {"Or", "broadcasts", 7, {}, {s, t}, {b8({2, 2}, {true, true, true, false})}},
    {"Xor", "broadcasts", 7, {}, {s, t}, {b8({2, 2}, {false, true, true, false})}},
    {"Not", "bools", 1, {}, {t}, {b8({2}, {false, true})}},
    {"BitwiseAnd", "integers", 18, {}, {i32({2}, {12, -1}), i32({2}, {10, 7})}, {i32({2}, {8, 7})}},
    {"BitwiseOr", "integers", 18, {}, {u8({2}, {12, 1}), u8({2}, {10, 128})}, {u8({2}, {14, 129})}},
    {"BitwiseXor", "integers", 18, {}, {i64({2}, {12, -1}), i64({}, {10})}, {i64({2}, {6, -11})}},
    {"BitwiseNot", "integers", 18, {}, {i8({3}, {0, -1, 5})}, {i8({3}, {-1, 0, -6})}},
    {"BitShift",
     "right",
     11,
     {{"direction", std::string("RIGHT")}},
     {u8({3}, {16, 4, 255}), u8({3}, {1, 2, 8})},
     {u8({3}, {8, 1, 0})}},
    {"BitShift",
     "left",
     11,
     {{"direction", std::string("LEFT")}},
     {u8({3}, {16, 4, 255}), u8({3}, {1, 7, 4})},
     {u8({3}, {32, 0, 240})}},
    {"BitShift",
     "signed right",
     28,
     {{"direction", std::string("RIGHT")}},
     {i32({4}, {-8, 8, -8, 8}), i32({4}, {1, 1, 99, -1})},
     {i32({4}, {-4, 4, -1, 0})}},
    {"BitShift",
     "signed left",
     28,
     {{"direction", std::string("LEFT")}},
     {i8({4}, {-8, 64, -8, 1}), i8({4}, {1, 1, 8, -1})},
     {i8({4}, {-16, -128, 0, 0})}},
    {"IsNaN", "float32", 13, {}, {special}, {b8({4}, {false, false, true, false})}},
    {"IsNaN", "bfloat16", 20, {}, {bf16({2}, {kNaN, 1})}, {b8({2}, {true, false})}},
    {"IsInf", "both", 20, {}, {special}, {b8({4}, {true, true, false, false})}},
    {"IsInf",
     "positive",
     10,
     {{"detect_negative", std::int64_t{0}}},
     {special},
     {b8({4}, {false, true, false, false})}},
    {"IsInf",
     "negative",
     10,
     {{"detect_positive", std::int64_t{0}}},
     {special},
     {b8({4}, {true, false, false, false})}},
    {"Where", "broadcasts three", 16, {}, {s, f32({2}, {1, 2}), f32({}, {9})}, {f32({2, 2}, {1, 2, 9, 9})}},
    {"Where", "64 bits", 9, {}, {t, i64({2}, {1, 2}), i64({2}, {3, 4})}, {i64({2}, {1, 4})}},
    {"Where", "keeps infinities out", 16, {}, {t, f32({2}, {1, kInf}), f32({2}, {kNaN, 0})}, {f32({2}, {1, 0})}},
});

}  // namespace
}  // namespace ulpscope::test::logic_rows
