// Layers that cannot be run end with an Error that names the layer, never with a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/op_rows.h"
#include "ulpscope/error.h"

namespace ulpscope::test {
namespace {

using Indices = std::vector<std::int64_t>;
const Tensor matrix = f32({2, 3}, {1, 2, 3, 4, 5, 6});
const Tensor any = f32({}, {0});
const Attribute one = std::int64_t{1};

class InvalidLayers : public testing::TestWithParam<Row> {};

TEST_P(InvalidLayers, AreRefused) {
  try {
    run_row(GetParam());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    ASSERT_NE(error.place(), nullptr) << error.what();
    EXPECT_EQ(error.place()->layer, "layer");
    EXPECT_EQ(error.place()->op, GetParam().op);
    EXPECT_THAT(error.what(), testing::StartsWith("[" + error.place()->stage + "] layer 'layer' (" + GetParam().op));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, InvalidLayers,
    testing::Values(Row{"Add", "shapes", 14, {}, {matrix, f32({2}, {1, 2})}, {any}},
                    Row{"Add", "types", 14, {}, {matrix, i64({}, {1})}, {any}},
                    Row{"Less", "types", 13, {}, {matrix, f64({}, {1})}, {any}},
                    Row{"And", "element type", 7, {}, {matrix, matrix}, {any}},
                    Row{"Sin", "element type", 7, {}, {i32({1}, {1})}, {any}},
                    Row{"PRelu", "slope is larger than the input", 16, {}, {f32({3}, {1, 2, 3}), matrix}, {any}},
                    Row{"Where", "types", 16, {}, {b8({}, {true}), matrix, i64({}, {1})}, {any}},
                    Row{"BitShift", "direction", 11, {}, {u8({1}, {1}), u8({1}, {1})}, {any}},
                    Row{"Clip", "type of a limit", 13, {}, {matrix, f64({}, {1})}, {any}},
                    Row{"CumSum", "axis", 14, {}, {matrix, i32({}, {2})}, {any}},
                    Row{"Gelu", "approximation", 20, {{"approximate", std::string("x")}}, {matrix}, {any}},
                    Row{"ReduceSum", "axis", 13, {}, {matrix, i64({1}, {2})}, {any}},
                    Row{"ReduceMean", "axis twice", 13, {{"axes", Indices{1, -1}}}, {matrix}, {any}},
                    Row{"ArgMax", "no elements", 13, {{"axis", one}}, {Tensor(DataType::kFloat32, {2, 0})}, {any}},
                    Row{"Softmax", "axis", 13, {{"axis", std::int64_t{2}}}, {matrix}, {any}},
                    Row{"LayerNormalization", "scale", 17, {}, {matrix, f32({2}, {1, 2})}, {any}},
                    Row{"GroupNormalization",
                        "groups",
                        21,
                        {{"num_groups", std::int64_t{2}}},
                        {f32({1, 3, 1}, {1, 2, 3}), f32({3}, {1, 2, 3}), f32({3}, {1, 2, 3})},
                        {any}},
                    Row{"BatchNormalization",
                        "parameters",
                        15,
                        {},
                        {matrix, f32({2}, {1, 2}), f32({3}, {1, 2, 3}), f32({3}, {1, 2, 3}), f32({3}, {1, 2, 3})},
                        {any}},
                    Row{"LpNormalization", "norm", 22, {{"p", std::int64_t{3}}}, {matrix}, {any}},
                    Row{"LRN", "no channels", 13, {{"size", one}}, {f32({2}, {1, 2})}, {any}},
                    Row{"NegativeLogLikelihoodLoss", "target", 13, {}, {matrix, i64({2}, {0, 3})}, {any}},
                    Row{"SoftmaxCrossEntropyLoss", "shapes", 13, {}, {matrix, i64({3}, {0, 1, 2})}, {any}},
                    Row{"Det", "not square", 22, {}, {matrix}, {any}}),
    [](const testing::TestParamInfo<Row>& info) {
      std::string name = info.param.op + "_" + info.param.label;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

}  // namespace
}  // namespace ulpscope::test
