// Rows of the arithmetic operators with two or more inputs.
#include "ops/op_rows.h"

namespace ulpscope::test {
namespace {

const Tensor a = f32({2, 3}, {1, -2, 3, 4, 5, -6});
const Tensor row = f32({3}, {10, 20, 0.5F});

const AddRows rows({
    {"Add", "broadcasts", 14, {}, {a, row}, {f32({2, 3}, {11, 18, 3.5F, 14, 25, -5.5F})}},
    {"Add", "wraps around", 14, {}, {i32({2}, {INT32_MAX, 1}), i32({}, {1})}, {i32({2}, {INT32_MIN, 2})}},
    {"Sub", "broadcasts", 14, {}, {a, row}, {f32({2, 3}, {-9, -22, 2.5F, -6, -15, -6.5F})}},
    {"Sub", "wraps around", 14, {}, {u8({2}, {1, 9}), u8({2}, {2, 4})}, {u8({2}, {255, 5})}},
});

}  // namespace
}  // namespace ulpscope::test
