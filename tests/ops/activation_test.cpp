// Rows of the float operators with one input. Expected values: the definition, in double.
#include <algorithm>
#include <limits>

#include "ops/op_rows.h"

namespace ulpscope::test::activation_rows {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Real = double (*)(double);

/// Rows of an operator without attributes: values in [low, high], and the same in double and float16.
void add(std::vector<Row>& rows, const char* op, int opset, double low, double high, Real function) {
  const Tensor x = spread({3, 5, 11}, low, high, 7);
  rows.push_back({op, "float32", opset, {}, {x}, {mapped(x, function)}});
  const Tensor wide = x.cast(DataType::kFloat64);
  Tensor expected(DataType::kFloat64, wide.shape());
  for (std::int64_t i = 0; i < wide.size(); ++i) expected.data<double>()[i] = function(wide.data<double>()[i]);
  rows.push_back({op, "float64", opset, {}, {wide}, {expected}, 1e-13});
  const Tensor narrow = x.cast(DataType::kFloat16);
  rows.push_back({op,
                  "float16",
                  opset,
                  {},
                  {narrow},
                  {mapped(narrow.cast(DataType::kFloat32), function).cast(DataType::kFloat16)},
                  1e-3});
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(x)); }

std::vector<Row> plain() {
  std::vector<Row> rows;
  add(rows, "Abs", 13, -5, 5, std::abs);
  add(rows, "Neg", 13, -5, 5, [](double x) { return -x; });
  add(rows, "Sign", 13, -5, 5, [](double x) { return x > 0 ? 1.0 : -1.0; });
  add(rows, "Ceil", 13, -5, 5, std::ceil);
  add(rows, "Floor", 13, -5, 5, std::floor);
  add(rows, "Round", 22, -5, 5, std::rint);
  add(rows, "Reciprocal", 13, 0.1, 5, [](double x) { return 1 / x; });
  add(rows, "Sqrt", 13, 0, 9, std::sqrt);
  add(rows, "Exp", 13, -5, 5, std::exp);
  add(rows, "Log", 13, 0.01, 9, std::log);
  add(rows, "Sin", 22, -9, 9, std::sin);
  add(rows, "Cos", 22, -9, 9, std::cos);
  add(rows, "Tan", 22, -1.2, 1.2, std::tan);
  add(rows, "Asin", 22, -1, 1, std::asin);
  add(rows, "Acos", 22, -1, 1, std::acos);
  add(rows, "Atan", 22, -9, 9, std::atan);
  add(rows, "Sinh", 22, -3, 3, std::sinh);
  add(rows, "Cosh", 22, -3, 3, std::cosh);
  add(rows, "Tanh", 13, -4, 4, std::tanh);
  add(rows, "Asinh", 22, -9, 9, std::asinh);
  add(rows, "Acosh", 22, 1, 9, std::acosh);
  add(rows, "Atanh", 22, -0.9, 0.9, std::atanh);
  add(rows, "Erf", 13, -3, 3, std::erf);
  add(rows, "Sigmoid", 13, -9, 9, sigmoid);
  add(rows, "HardSigmoid", 22, -4, 4, [](double x) { return std::clamp(double{0.2F} * x + 0.5, 0.0, 1.0); });
  add(rows, "HardSwish", 22, -4, 4, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
  add(rows, "Relu", 14, -5, 5, [](double x) { return std::max(x, 0.0); });
  add(rows, "LeakyRelu", 16, -5, 5, [](double x) { return x < 0 ? double{0.01F} * x : x; });
  add(rows, "Elu", 22, -5, 5, [](double x) { return x < 0 ? std::exp(x) - 1 : x; });
  add(rows, "Selu", 22, -5, 5, [](double x) {
    return double{1.05070102214813232421875F} * (x > 0 ? x : double{1.67326319217681884765625F} * (std::exp(x) - 1));
  });
  add(rows, "Celu", 28, -5, 5, [](double x) { return std::max(0.0, x) + std::min(0.0, std::exp(x) - 1); });
  add(rows, "ThresholdedRelu", 22, -5, 5, [](double x) { return x > 1 ? x : 0; });
  add(rows, "Softplus", 22, -5, 5, softplus);
  add(rows, "Softsign", 22, -5, 5, [](double x) { return x / (1 + std::abs(x)); });
  add(rows, "Gelu", 20, -5, 5, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); });
  add(rows, "Mish", 22, -5, 5, [](double x) { return x * std::tanh(softplus(x)); });
  add(rows, "Swish", 24, -5, 5, [](double x) { return x * sigmoid(x); });
  return rows;
}

const Tensor x = spread({4, 9}, -3, 3, 3);
const Tensor special = f32({5}, {-kInf, kInf, kNaN, -200, 200});

const AddRows plain_rows(plain());

const AddRows rows({
    {"Abs", "integers", 13, {}, {i8({3}, {-128, -5, 7})}, {i8({3}, {-128, 5, 7})}},
    {"Neg", "lowest", 13, {}, {i32({2}, {INT32_MIN, 5})}, {i32({2}, {INT32_MIN, -5})}},
    {"Sign", "zero and NaN", 13, {}, {f32({2}, {0, kNaN})}, {f32({2}, {0, kNaN})}},
    {"Sign", "integers", 13, {}, {i64({3}, {-9, 0, 4})}, {i64({3}, {-1, 0, 1})}},
    {"Round",
     "ties to even",
     11,
     {},
     {f32({6}, {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F})},
     {f32({6}, {0, 2, 2, 0, -2, -2})}},
    {"Sqrt", "of a negative number", 13, {}, {f32({1}, {-1})}, {f32({1}, {kNaN})}},
    {"Sigmoid", "saturates", 13, {}, {special}, {f32({5}, {0, 1, kNaN, 0, 1})}},
    {"Softplus", "does not overflow", 22, {}, {special}, {f32({5}, {0, kInf, kNaN, 0, 200})}},
    {"Relu", "NaN stays", 14, {}, {special}, {f32({5}, {0, kInf, kNaN, 0, 200})}},
    {"Relu", "integers", 14, {}, {i32({2}, {-4, 4})}, {i32({2}, {0, 4})}},
    {"HardSigmoid",
     "attributes",
     6,
     {{"alpha", 0.5F}, {"beta", 0.6F}},
     {x},
     {mapped(x, [](double v) { return std::clamp(0.5 * v + 0.6, 0.0, 1.0); })}},
    {"LeakyRelu", "alpha", 16, {{"alpha", 0.25F}}, {x}, {mapped(x, [](double v) { return v < 0 ? 0.25 * v : v; })}},
    {"PRelu",
     "slope per channel",
     16,
     {},
     {f32({2, 2}, {-1, 2, -3, -4}), f32({2, 1}, {0.5F, 2})},
     {f32({2, 2}, {-0.5F, 2, -6, -8})}},
    {"Elu", "alpha", 6, {{"alpha", 2.0F}}, {x}, {mapped(x, [](double v) { return v < 0 ? 2 * std::expm1(v) : v; })}},
    {"Selu",
     "attributes",
     6,
     {{"alpha", 2.0F}, {"gamma", 3.0F}},
     {x},
     {mapped(x, [](double v) { return v <= 0 ? 3 * (2 * std::exp(v) - 2) : 3 * v; })}},
    {"Celu",
     "alpha",
     12,
     {{"alpha", 2.0F}},
     {x},
     {mapped(x, [](double v) { return v < 0 ? 2 * std::expm1(v / 2) : v; })}},
    {"ThresholdedRelu", "alpha", 10, {{"alpha", 2.0F}}, {x}, {mapped(x, [](double v) { return v > 2 ? v : 0; })}},
    {"Gelu",
     "tanh",
     20,
     {{"approximate", std::string("tanh")}},
     {x},
     {mapped(x,
             [](double v) {
               return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
             })}},
    {"Swish", "alpha", 24, {{"alpha", 2.0F}}, {x}, {mapped(x, [](double v) { return v * sigmoid(2 * v); })}},
    {"Gelu",
     "of Microsoft",
     1,
     {},
     {x},
     {mapped(x, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); })},
     1e-6,
     "com.microsoft"},
    {"FastGelu",
     "with a bias",
     1,
     {},
     {f32({1, 2}, {0, 1}), f32({2}, {1, -3})},
     {f32({1, 2}, {0.84119199F, -0.04540231F})},
     1e-6,
     "com.microsoft"},
    {"QuickGelu",
     "default alpha",
     1,
     {},
     {x},
     {mapped(x, [](double v) { return v * sigmoid(double{1.702F} * v); })},
     1e-6,
     "com.microsoft"},
    {"Shrink",
     "soft",
     9,
     {{"lambd", 1.5F}, {"bias", 1.5F}},
     {f32({5}, {-2, -1, 0, 1, 2})},
     {f32({5}, {-0.5F, 0, 0, 0, 0.5F})}},
    {"Shrink", "integers", 9, {{"lambd", 1.5F}}, {i32({5}, {-2, -1, 0, 1, 2})}, {i32({5}, {-2, 0, 0, 0, 2})}},
    {"Clip", "limits are attributes", 6, {{"min", -1.0F}, {"max", 1.0F}}, {special}, {f32({5}, {-1, 1, kNaN, -1, 1})}},
    {"Clip", "limits are inputs", 13, {}, {special, f32({}, {-1}), f32({}, {2})}, {f32({5}, {-1, 2, kNaN, -1, 2})}},
    {"Clip", "a limit is NaN", 13, {}, {special, f32({}, {kNaN})}, {f32({5}, {kNaN, kNaN, kNaN, kNaN, kNaN})}},
    {"Clip", "the other is NaN", 13, {}, {f32({2}, {0, 9}), Tensor(), f32({}, {kNaN})}, {f32({2}, {kNaN, kNaN})}},
    {"Clip", "no lower limit", 13, {}, {i8({3}, {-100, 5, 100}), Tensor(), i8({}, {7})}, {i8({3}, {-100, 5, 7})}},
    {"Clip", "no limit of infinities", 11, {}, {f32({3}, {kInf, -kInf, 1})}, {f32({3}, {kMost, -kMost, 1})}},
    {"Clip", "no attribute", 6, {{"max", 1.0F}}, {f32({3}, {kInf, -kInf, kNaN})}, {f32({3}, {1, -kMost, kNaN})}},
    {"Clip", "limits crossed", 13, {}, {f32({2}, {0, 9}), f32({}, {2}), f32({}, {1})}, {f32({2}, {1, 1})}},
    {"Dropout", "inference", 13, {}, {f32({2}, {1, 2})}, {f32({2}, {1, 2}), b8({2}, {true, true})}},
    {"Dropout",
     "training without loss",
     13,
     {},
     {f32({2}, {1, 2}), f32({}, {0}), b8({}, {true})},
     {f32({2}, {1, 2}), b8({2}, {true, true})}},
    // RandomState(1).uniform() starts with 0.417, 0.720, 0.0001, 0.302.
    {"Dropout",
     "training",
     13,
     {{"seed", std::int64_t{1}}},
     {f32({4}, {1, 2, 3, 4}), f32({}, {0.4F}), b8({}, {true})},
     {f32({4}, {1 / 0.6F, 2 / 0.6F, 0, 0}), b8({4}, {true, true, false, false})}},
    {"Dropout", "old mask", 7, {{"ratio", 0.3F}}, {f32({2}, {1, 2})}, {f32({2}, {1, 2}), f32({2}, {1, 1})}},
});

}  // namespace
}  // namespace ulpscope::test::activation_rows
