// Rows of quantization.
#include <limits>

#include "ops/op_rows.h"

namespace ulpscope::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const Attribute kZero = std::int64_t{0}, kOne = std::int64_t{1}, kTwo = std::int64_t{2};

const AddRows rows({
    {"QuantizeLinear",
     "ties to even and saturation",
     10,
     {},
     {f32({6}, {1, 3, -5, 1000, -1000, kInf}), f32({}, {2}), i8({}, {0})},
     {i8({6}, {0, 2, -2, 127, -128, 127})}},
    {"QuantizeLinear",
     "uint8 without zero point",
     13,
     {},
     {f32({3}, {-1, 7, 300}), f32({}, {1})},
     {u8({3}, {0, 7, 255})}},
    {"QuantizeLinear",
     "per axis",
     13,
     {{"axis", kZero}},
     {f32({2, 2}, {1, 2, 3, 4}), f32({2}, {1, 0.5F}), u8({2}, {0, 10})},
     {u8({2, 2}, {1, 2, 16, 18})}},
    {"QuantizeLinear",
     "blocks of an axis",
     21,
     {{"axis", kOne}, {"block_size", kTwo}, {"output_dtype", std::int64_t{5}}},
     {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({2, 2}, {1, 0.01F, 0.1F, 2})},
     {Tensor::of<std::int16_t>({2, 3}, {1, 2, 300, 40, 50, 3})}},
    {"DequantizeLinear",
     "with zero point",
     10,
     {},
     {u8({3}, {0, 128, 255}), f32({}, {0.5F}), u8({}, {128})},
     {f32({3}, {-64, 0, 63.5F})}},
    {"DequantizeLinear",
     "int32 has none",
     13,
     {},
     {i32({2}, {-7, 100000}), f32({}, {0.25F})},
     {f32({2}, {-1.75F, 25000})}},
    {"DequantizeLinear",
     "per axis, float16",
     19,
     {{"axis", std::int64_t{-1}}},
     {i8({2, 2}, {1, 2, 3, -4}), f16({2}, {1, 0.5F}), i8({2}, {0, 2})},
     {f16({2, 2}, {1, 0, 3, -3})}},
    {"DequantizeLinear",
     "blocks of an axis",
     21,
     {{"axis", kZero}, {"block_size", kTwo}},
     {i8({3, 2}, {1, 2, 3, 4, 5, 6}), f32({2, 2}, {1, 10, 100, 1000})},
     {f32({3, 2}, {1, 20, 3, 40, 500, 6000})}},
    {"DynamicQuantizeLinear",
     "the range includes zero",
     11,
     {},
     {f32({3}, {51, 25.5F, 102})},
     {u8({3}, {128, 64, 255}), f32({}, {0.4F}), u8({}, {0})}},
    {"DynamicQuantizeLinear",
     "negative values",
     11,
     {},
     {f32({2}, {-51, 204})},
     {u8({2}, {0, 255}), f32({}, {1}), u8({}, {51})}},
});

}  // namespace
}  // namespace ulpscope::test
