// Rows of the operators that select elements by index or by value.
#include <gtest/gtest.h>

#include <limits>

#include "ops/op_rows.h"
#include "ulpscope/error.h"

namespace ulpscope::test::indexing_rows {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const Tensor m = f32({2, 3}, {1, 2, 3, 4, 5, 6});
const Attribute kAxis0 = std::int64_t{0}, kAxis1 = std::int64_t{1};

const Tensor boxes = f32({1, 4, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 10, 1, 11, 1, 11, 0, 10});
const Tensor scores = f32({1, 1, 4}, {0.9F, 0.75F, 0.6F, 0.95F});

const AddRows rows({
    {"Gather", "rows", 13, {}, {m, i64({2}, {-1, 0})}, {f32({2, 3}, {4, 5, 6, 1, 2, 3})}},
    {"Gather", "a scalar index", 11, {{"axis", kAxis1}}, {m, i32({}, {2})}, {f32({2}, {3, 6})}},
    {"Gather", "of nothing", 13, {}, {m, i64({0}, {})}, {f32({0, 3}, {})}},
    {"GatherElements", "columns", 13, {{"axis", kAxis1}}, {m, i64({2, 2}, {0, -1, 1, 1})}, {f32({2, 2}, {1, 3, 5, 5})}},
    {"GatherElements", "rows", 11, {}, {m, i32({1, 2}, {1, 0})}, {f32({1, 2}, {4, 2})}},
    {"GatherElements", "nothing", 11, {}, {m, i32({1, 0}, {})}, {f32({1, 0}, {})}},
    {"ScatterElements", "nothing", 18, {}, {m, i32({0, 2}, {}), f32({0, 2}, {})}, {m}},
    {"GatherND", "elements", 11, {}, {m, i64({2, 2}, {0, 0, 1, -1})}, {f32({2}, {1, 6})}},
    {"GatherND", "slices", 13, {}, {m, i64({1, 1}, {1})}, {f32({1, 3}, {4, 5, 6})}},
    {"GatherND", "batches", 12, {{"batch_dims", std::int64_t{1}}}, {m, i64({2, 1}, {2, 0})}, {f32({2}, {3, 4})}},
    {"Scatter", "rows", 9, {}, {m, i64({1, 2}, {1, 0}), f32({1, 2}, {10, 20})}, {f32({2, 3}, {1, 20, 3, 10, 5, 6})}},
    {"ScatterElements",
     "columns",
     13,
     {{"axis", kAxis1}},
     {m, i64({1, 2}, {1, -1}), f32({1, 2}, {10, 20})},
     {f32({2, 3}, {1, 10, 20, 4, 5, 6})}},
    {"ScatterElements",
     "adds",
     18,
     {{"axis", kAxis1}, {"reduction", std::string("add")}},
     {u8({1, 2}, {255, 1}), i64({1, 3}, {0, 0, 1}), u8({1, 3}, {1, 4, 5})},
     {u8({1, 2}, {4, 6})}},
    {"ScatterElements",
     "multiplies",
     16,
     {{"axis", kAxis1}, {"reduction", std::string("mul")}},
     {m, i64({1, 2}, {0, 0}), f32({1, 2}, {2, 5})},
     {f32({2, 3}, {10, 2, 3, 4, 5, 6})}},
    {"ScatterElements",
     "NaN wins",
     18,
     {{"axis", kAxis1}, {"reduction", std::string("max")}},
     {m, i64({2, 2}, {0, 1, 0, 1}), f32({2, 2}, {kNaN, 9, 1, 1})},
     {f32({2, 3}, {kNaN, 9, 3, 4, 5, 6})}},
    {"ScatterND", "slices", 11, {}, {m, i64({1, 1}, {-1}), f32({1, 3}, {7, 8, 9})}, {f32({2, 3}, {1, 2, 3, 7, 8, 9})}},
    {"ScatterND",
     "adds twice",
     16,
     {{"reduction", std::string("add")}},
     {m, i64({2, 2}, {0, 1, 0, 1}), f32({2}, {10, 100})},
     {f32({2, 3}, {1, 112, 3, 4, 5, 6})}},
    {"ScatterND",
     "min",
     18,
     {{"reduction", std::string("min")}},
     {m, i64({1, 1}, {0}), f32({1, 3}, {0, 2, 9})},
     {f32({2, 3}, {0, 2, 3, 4, 5, 6})}},
    {"TensorScatter",
     "linear",
     24,
     {{"axis", kAxis1}},
     {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({2, 1}, {7, 8}), i64({2}, {0, 2})},
     {f32({2, 3}, {7, 2, 3, 4, 5, 8})}},
    {"TensorScatter",
     "circular",
     24,
     {{"axis", kAxis1}, {"mode", std::string("circular")}},
     {i32({1, 3}, {1, 2, 3}), i32({1, 2}, {7, 8}), i64({1}, {2})},
     {i32({1, 3}, {8, 2, 7})}},
    {"OneHot",
     "last axis",
     11,
     {},
     {i64({3}, {0, -1, 5}), i64({1}, {3}), f32({2}, {0, 1})},
     {f32({3, 3}, {1, 0, 0, 0, 0, 1, 0, 0, 0})}},
    {"OneHot",
     "first axis, float depth",
     9,
     {{"axis", kAxis0}},
     {f32({2}, {1, 0}), f32({}, {2}), i32({2}, {5, 7})},
     {i32({2, 2}, {5, 7, 7, 5})}},
    {"NonZero", "matrix", 13, {}, {f32({2, 2}, {0, kNaN, 3, -0.0F})}, {i64({2, 2}, {0, 1, 1, 0})}},
    {"NonZero", "scalar", 9, {}, {b8({}, {true})}, {i64({0, 1}, {})}},
    {"Unique",
     "sorted",
     11,
     {},
     {f32({2, 3}, {2, kNaN, 1, 1, kNaN, 2})},
     {f32({3}, {1, 2, kNaN}), i64({3}, {2, 0, 1}), i64({6}, {1, 2, 0, 0, 2, 1}), i64({3}, {2, 2, 2})}},
    {"Unique",
     "in order",
     11,
     {{"sorted", std::int64_t{0}}},
     {i32({4}, {3, 1, 3, 2})},
     {i32({3}, {3, 1, 2}), i64({3}, {0, 1, 3}), i64({4}, {0, 1, 0, 2}), i64({3}, {2, 1, 1})}},
    {"Unique",
     "columns",
     11,
     {{"axis", kAxis1}},
     {i32({2, 3}, {2, 1, 2, 0, 5, 0})},
     {i32({2, 2}, {1, 2, 5, 0}), Tensor(), i64({3}, {1, 0, 1}), Tensor()}},
    {"TopK",
     "attribute",
     7,
     {{"k", std::int64_t{2}}},
     {f32({2, 3}, {1, 3, 3, 4, kNaN, 6})},
     {f32({2, 2}, {3, 3, kNaN, 6}), i64({2, 2}, {1, 2, 1, 2})}},
    {"TopK",
     "smallest of an axis",
     11,
     {{"axis", kAxis0}, {"largest", std::int64_t{0}}},
     {i32({3, 2}, {5, 1, 4, 1, 3, 0}), i64({1}, {2})},
     {i32({2, 2}, {3, 0, 4, 1}), i64({2, 2}, {2, 2, 1, 0})}},
    {"TopK", "indices only", 10, {}, {f32({3}, {1, 3, 2}), i64({1}, {1})}, {Tensor(), i64({1}, {1})}},
    {"Compress", "rows", 11, {{"axis", kAxis0}}, {m, b8({2}, {false, true})}, {f32({1, 3}, {4, 5, 6})}},
    {"Compress", "flat, short condition", 9, {}, {m, b8({3}, {true, false, true})}, {f32({2}, {1, 3})}},
    {"NonMaxSuppression",
     "overlaps",
     11,
     {},
     {boxes, scores, i64({1}, {3}), f32({1}, {0.5F}), f32({1}, {0})},
     {i64({2, 3}, {0, 0, 3, 0, 0, 0})}},
    {"NonMaxSuppression",
     "threshold and limit",
     10,
     {},
     {boxes, scores, i64({}, {1}), f32({}, {0.5F}), f32({}, {0.8F})},
     {i64({1, 3}, {0, 0, 3})}},
    {"NonMaxSuppression", "no limit means none", 11, {}, {boxes, scores}, {i64({0, 3}, {})}},
});

const std::vector<Row> kWrong = {
    {"Gather", "index", 13, {}, {m, i64({1}, {2})}, {m}},
    {"GatherElements", "index", 13, {}, {m, i64({1, 1}, {-3})}, {m}},
    {"GatherND", "index", 13, {}, {m, i64({1, 2}, {0, 3})}, {m}},
    {"GatherND", "tuple", 13, {}, {m, i64({1, 3}, {0, 0, 0})}, {m}},
    {"ScatterElements", "index", 13, {}, {m, i64({1, 1}, {2}), f32({1, 1}, {1})}, {m}},
    {"ScatterND", "updates", 13, {}, {m, i64({1, 1}, {1}), f32({1, 2}, {1, 2})}, {m}},
    {"ScatterND", "index", 13, {}, {m, i64({1, 1}, {-3}), f32({1, 3}, {1, 2, 3})}, {m}},
    {"TensorScatter", "does not fit", 24, {{"axis", kAxis1}}, {m, f32({2, 2}, {7, 8, 9, 9}), i64({2}, {0, 2})}, {m}},
    {"TopK", "too many", 11, {}, {m, i64({1}, {4})}, {m, i64({}, {0})}},
    {"Compress", "outside", 11, {{"axis", kAxis0}}, {m, b8({3}, {false, true, true})}, {m}},
    {"OneHot", "depth", 11, {}, {i64({1}, {0}), i64({1}, {-1}), f32({2}, {0, 1})}, {m}},
};

TEST(Indexing, RefusesWhatIsOutOfRange) {
  for (const Row& row : kWrong) {
    try {
      run_row(row);
      ADD_FAILURE() << row.op << " (" << row.label << ") did not throw";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("layer 'layer'"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ulpscope::test::indexing_rows
