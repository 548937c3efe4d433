// Rows of the convolutions and matrix products, and of the geometry of windows.
#include <gtest/gtest.h>

#include "graph/network.h"
#include "ops/op_rows.h"
#include "ops/registry.h"
#include "ops/window.h"
#include "ulpscope/error.h"

namespace ulpscope::test::convolution_rows {
namespace {

using Ints = std::vector<std::int64_t>;

struct Window2 {
  std::int64_t stride = 1, dilation = 1, pad_top = 0, pad_left = 0, groups = 1;
};

/// A 2-d convolution straight from its definition.
Tensor convolved(const Tensor& x, const Tensor& w, const Tensor& bias, const Shape& out, const Window2& p) {
  const Shape &xs = x.shape(), &ws = w.shape();
  return generated(out, [=](std::int64_t i) {
    const std::int64_t ox = i % out[3], oy = i / out[3] % out[2], m = i / (out[3] * out[2]) % out[1],
                       n = i / (out[3] * out[2] * out[1]);
    double sum = bias ? bias.data<float>()[m] : 0;
    for (std::int64_t c = 0; c < ws[1]; ++c)
      for (std::int64_t ky = 0; ky < ws[2]; ++ky)
        for (std::int64_t kx = 0; kx < ws[3]; ++kx) {
          const std::int64_t y = oy * p.stride + ky * p.dilation - p.pad_top,
                             z = ox * p.stride + kx * p.dilation - p.pad_left;
          if (y < 0 || y >= xs[2] || z < 0 || z >= xs[3]) continue;
          const std::int64_t channel = m / (out[1] / p.groups) * ws[1] + c;
          sum += double{x.data<float>()[((n * xs[1] + channel) * xs[2] + y) * xs[3] + z]} *
                 w.data<float>()[((m * ws[1] + c) * ws[2] + ky) * ws[3] + kx];
        }
    return sum;
  });
}

/// (m, k) times (k, n), with options of Gemm.
Tensor product(const Tensor& a, const Tensor& b, double alpha = 1,
               const std::function<double(std::int64_t, std::int64_t)>& c = {}) {
  const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  return generated({m, n}, [=](std::int64_t i) {
    double sum = 0;
    for (std::int64_t p = 0; p < k; ++p) sum += double{a.data<float>()[i / n * k + p]} * b.data<float>()[p * n + i % n];
    return alpha * sum + (c ? c(i / n, i % n) : 0);
  });
}

const Tensor x = spread({2, 4, 7, 6}, -1, 1, 1), w = spread({6, 2, 3, 2}, -1, 1, 2), bias = spread({6}, -1, 1, 3);
const Tensor w1 = spread({3, 4, 2, 2}, -1, 1, 4);
const Tensor a = spread({3, 5}, -1, 1, 5), b = spread({5, 4}, -1, 1, 6);
const Tensor counting = f32({1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8}), ones = f32({1, 1, 2, 2}, {1, 1, 1, 1});

/// Bytes of 0 but for some.
Tensor nibbles(const Shape& shape, std::initializer_list<std::pair<int, std::uint8_t>> values) {
  Tensor result(DataType::kUInt8, shape);
  std::fill_n(result.data<std::uint8_t>(), result.size(), std::uint8_t{0});
  for (const auto& [at, value] : values) result.data<std::uint8_t>()[at] = value;
  return result;
}

const AddRows rows({
    {"Conv",
     "groups, strides, dilations and pads",
     11,
     {{"group", std::int64_t{2}}, {"strides", Ints{2, 2}}, {"dilations", Ints{2, 2}}, {"pads", Ints{1, 2, 2, 1}}},
     {x, w, bias},
     {convolved(x, w, bias, {2, 6, 3, 4}, {2, 2, 1, 2, 2})},
     1e-5},
    {"Conv",
     "same upper",
     22,
     {{"auto_pad", std::string("SAME_UPPER")}},
     {x, w1},
     {convolved(x, w1, {}, {2, 3, 7, 6}, {})},
     1e-5},
    {"Conv",
     "same lower",
     22,
     {{"auto_pad", std::string("SAME_LOWER")}},
     {x, w1},
     {convolved(x, w1, {}, {2, 3, 7, 6}, {1, 1, 1, 1})},
     1e-5},
    {"Conv",
     "one dimension",
     11,
     {{"pads", Ints{1, 0}}},
     {f32({1, 1, 3}, {1, 2, 3}), f32({1, 1, 2}, {10, 1})},
     {f32({1, 1, 3}, {1, 12, 23})}},
    {"Conv",
     "three dimensions",
     11,
     {},
     {spread({1, 1, 2, 2, 2}, 1, 1), f32({1, 1, 2, 1, 2}, {1, 2, 3, 4}), f32({1}, {0.5F})},
     {f32({1, 1, 1, 2, 1}, {10.5F, 10.5F})}},
    {"ConvTranspose",
     "overlapping ones",
     11,
     {},
     {counting, ones},
     {f32({1, 1, 4, 4}, {0, 1, 3, 2, 3, 8, 12, 7, 9, 20, 24, 13, 6, 13, 15, 8})}},
    {"ConvTranspose",
     "strides, pads and bias",
     11,
     {{"strides", Ints{2, 2}}, {"pads", Ints{0, 1, 1, 0}}},
     {f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({1, 1, 2, 2}, {1, 10, 100, 1000}), f32({1}, {0.5F})},
     {f32({1, 1, 3, 3}, {10.5F, 2.5F, 20.5F, 1000.5F, 200.5F, 2000.5F, 30.5F, 4.5F, 40.5F})}},
    {"ConvTranspose",
     "output shape and group",
     22,
     {{"group", std::int64_t{2}}, {"strides", Ints{2}}, {"output_shape", Ints{3}}},
     {f32({1, 2, 2}, {1, 2, 3, 4}), f32({2, 1, 2}, {1, 10, 1, 10})},
     {f32({1, 2, 3}, {10, 2, 20, 30, 4, 40})}},
    {"DeformConv",
     "no offsets: a convolution",
     19,
     {},
     {counting, ones, Tensor::of<float>({1, 8, 2, 2}, std::vector<float>(32))},
     {f32({1, 1, 2, 2}, {8, 12, 20, 24})}},
    {"DeformConv",
     "half a row, with mask and bias",
     22,
     {},
     {counting, f32({1, 1, 1, 1}, {2}),
      f32({1, 2, 3, 3}, {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0, 0, 0, 0, 0, 0, 0, 0, 1}),
      f32({1}, {1}), f32({1, 1, 3, 3}, {1, 1, 1, 0.5F, 1, 1, 1, 1, 1})},
     {f32({1, 1, 3, 3}, {4, 6, 8, 5.5F, 12, 14, 7, 8, 1})}},
    {"ConvInteger",
     "zero point of the input",
     10,
     {},
     {u8({1, 1, 3, 3}, {2, 3, 4, 5, 6, 7, 8, 9, 10}), u8({1, 1, 2, 2}, {1, 1, 1, 1}), u8({}, {1})},
     {i32({1, 1, 2, 2}, {12, 16, 24, 28})}},
    {"ConvInteger",
     "signed weights with a zero point each",
     10,
     {},
     {u8({1, 1, 1, 2}, {255, 1}), i8({2, 1, 1, 2}, {-128, 127, 3, 4}), u8({}, {0}), i8({2}, {0, 3})},
     {i32({1, 2, 1, 1}, {-32513, 1})}},
    {"QLinearConv",
     "scales per channel and saturation",
     10,
     {},
     {u8({1, 1, 1, 2}, {130, 2}), f32({}, {0.5F}), u8({}, {2}), i8({2, 1, 1, 1}, {2, -4}), f32({2}, {1, 0.25F}),
      i8({2}, {0, 0}), f32({}, {0.5F}), u8({}, {128}), i32({2}, {1, 0})},
     {u8({1, 2, 1, 2}, {255, 129, 0, 128})}},
    {"MatMul",
     "broadcasts batches",
     13,
     {},
     {spread({2, 1, 1, 2}, 2, 2), f32({1, 2, 2, 1}, {1, 2, 3, 4})},
     {f32({2, 2, 1, 1}, {6, 14, 6, 14})}},
    {"MatMul", "matrices", 9, {}, {a, b}, {product(a, b)}},
    {"MatMul", "vectors", 13, {}, {f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6})}, {f32({}, {32})}},
    {"MatMul",
     "nothing to sum",
     13,
     {},
     {Tensor(DataType::kFloat32, {2, 0}), Tensor(DataType::kFloat32, {0, 1})},
     {f32({2, 1}, {0, 0})}},
    {"MatMul",
     "integers",
     13,
     {},
     {i64({1, 2}, {3, -2}), i64({2, 1}, {1LL << 40, 5})},
     {i64({1, 1}, {(3LL << 40) - 10})}},
    {"Gemm",
     "alpha, beta and a row",
     13,
     {{"alpha", 0.5F}, {"beta", 2.0F}},
     {a, b, f32({4}, {1, 2, 3, 4})},
     {product(a, b, 0.5, [](std::int64_t, std::int64_t j) { return 2.0 * double(j + 1); })}},
    {"Gemm",
     "both transposed",
     7,
     {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}},
     {f32({2, 1}, {1, 2}), f32({2, 2}, {1, 2, 3, 4}), f32({1, 1}, {1})},
     {f32({1, 2}, {6, 12})}},
    {"MatMulInteger",
     "zero points per row and column",
     10,
     {},
     {u8({2, 2}, {11, 7, 3, 10}), u8({2, 2}, {1, 4, 2, 5}), u8({2}, {10, 3}), u8({2}, {1, 0})},
     {i32({2, 2}, {-3, -11, 7, 35})}},
    {"QLinearMatMul",
     "rounds to even",
     21,
     {},
     {u8({1, 2}, {1, 2}), f32({}, {1}), u8({}, {0}), i8({2, 3}, {1, 3, -128, 2, 1, 0}), f32({}, {0.5F}), i8({}, {0}),
      f32({}, {1}), i8({}, {0})},
     {i8({1, 3}, {2, 2, -64})}},
    {"MatMulNBits",
     "4 bits, a block with a rest, packed zero points and a bias",
     1,
     {{"N", std::int64_t{2}}, {"K", std::int64_t{18}}, {"bits", std::int64_t{4}}, {"block_size", std::int64_t{16}}},
     {generated({1, 18}, [](std::int64_t i) { return i == 0    ? 1
                                                     : i == 1  ? 10
                                                     : i == 17 ? 100
                                                               : 0; }),
      nibbles({2, 2, 8}, {{0, 0x21}, {8, 0x90}, {16, 0xf0}, {24, 0x08}}), f32({2, 2}, {1, 0.5F, 2, 1}),
      u8({2, 1}, {0x10, 0x87}), Tensor(), f32({2}, {0.25F, 0})},
     // Row 0: codes 1, 2, zero point 0, scale 1; code 9 at 17, zero point 1, scale 0.5. Row 1: codes 0, 15, zero point
     // 7, scale 2; code 0 at 17, zero point 8, scale 1.
     {f32({1, 2}, {21 + 400 + 0.25F, -14 + 160 - 800})},
     1e-6,
     "com.microsoft"},
    {"MatMulNBits",
     "2 bits, vector",
     1,
     {{"N", std::int64_t{1}}, {"K", std::int64_t{16}}, {"bits", std::int64_t{2}}, {"block_size", std::int64_t{16}}},
     {generated({16}, [](std::int64_t i) { return i < 4 ? std::pow(10.0, static_cast<double>(i)) : 0; }),
      u8({1, 1, 4}, {0b11100100, 0, 0, 0}), f32({1}, {0.5F})},
     {f32({1}, {(-2.0F - 10 + 1000) / 2})},
     1e-6,
     "com.microsoft"},
    {"FusedMatMul",
     "both transposed",
     1,
     {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}},
     {f32({2, 2}, {1, 2, 3, 4}), f32({2, 2}, {5, 6, 7, 8})},
     {f32({2, 2}, {23, 31, 34, 46})},
     1e-6,
     "com.microsoft"},
    {"FusedMatMul",
     "batch behind the first dimension, and a factor",
     1,
     {{"transBatchA", std::int64_t{1}}, {"transBatchB", std::int64_t{1}}, {"alpha", 0.5F}},
     {f32({2, 1, 2}, {1, 2, 3, 4}), f32({2, 1, 2}, {5, 6, 7, 8})},
     {f32({1, 2, 2}, {9.5F, 11, 21.5F, 25})},
     1e-6,
     "com.microsoft"},
    {"Einsum", "batched product", 12, {{"equation", std::string("...ij,...jk->...ik")}}, {a, b}, {product(a, b)}},
    {"Einsum", "diagonal", 12, {{"equation", std::string("ii->i")}}, {f32({2, 2}, {1, 2, 3, 4})}, {f32({2}, {1, 4})}},
    {"Einsum",
     "implicit output in alphabetical order",
     12,
     {{"equation", std::string("ba")}},
     {f32({2, 3}, {1, 2, 3, 4, 5, 6})},
     {f32({3, 2}, {1, 4, 2, 5, 3, 6})}},
    {"Einsum",
     "three operands",
     12,
     {{"equation", std::string("i, i, j -> j")}},
     {f32({2}, {1, 2}), f32({2}, {3, 4}), f32({2}, {1, 10})},
     {f32({2}, {11, 110})}},
});

Layer layer_of(const char* op, std::map<std::string, Attribute> attributes) {
  Layer layer;
  layer.name = "layer";
  layer.op = op_registry().find("", op);
  for (auto& [name, value] : attributes) layer.attributes.set(name, std::move(value));
  return layer;
}

TEST(WindowGeometry, LastWindowOfCeilModeStartsInside) {
  const Layer layer =
      layer_of("MaxPool", {{"kernel_shape", Ints{1}}, {"strides", Ints{2}}, {"ceil_mode", std::int64_t{1}}});
  EXPECT_EQ(ops::pool_geometry(layer, {1, 1, 4}).output, Shape{2});
  EXPECT_EQ(ops::pool_geometry(layer, {1, 1, 5}).output, Shape{3});
}

TEST(WindowGeometry, SamePadsPutTheOddOneWhereTheModeSays) {
  for (const auto& [mode, begin, end] : {std::tuple{"SAME_UPPER", 1, 2}, std::tuple{"SAME_LOWER", 2, 1}}) {
    const auto g = ops::conv_geometry(layer_of("Conv", {{"auto_pad", std::string(mode)}}), {1, 1, 5}, {1, 1, 4});
    EXPECT_EQ(g.pads_begin, Shape{begin});
    EXPECT_EQ(g.pads_end, Shape{end});
    EXPECT_EQ(g.output, Shape{5});
  }
}

TEST(WindowGeometry, RefusesWhatDoesNotFitAndNamesTheLayer) {
  try {
    ops::conv_geometry(layer_of("Conv", {}), {1, 3, 5, 5}, {4, 2, 3, 3});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    EXPECT_NE(std::string(error.what()).find("'layer' (Conv)"), std::string::npos) << error.what();
  }
  EXPECT_THROW(ops::conv_geometry(layer_of("Conv", {{"strides", Ints{0}}}), {1, 1, 5}, {1, 1, 3}), Error);
  EXPECT_THROW(ops::conv_geometry(layer_of("Conv", {{"pads", Ints{1}}}), {1, 1, 5}, {1, 1, 3}), Error);
  EXPECT_THROW(ops::conv_geometry(layer_of("Conv", {}), {1, 1, 2}, {1, 1, 3}), Error);
  EXPECT_THROW(ops::pool_geometry(layer_of("MaxPool", {}), {1, 1, 5}), Error);
}

TEST(WindowGeometry, ValidOutputsReadInsideOnly) {
  for (std::int64_t stride = 1; stride <= 3; ++stride)
    for (std::int64_t offset = -5; offset <= 5; ++offset) {
      const auto range = ops::valid_outputs(4, 6, stride, offset);
      for (std::int64_t o = 0; o < 4; ++o) {
        const bool inside = o * stride + offset >= 0 && o * stride + offset < 6;
        EXPECT_EQ(o >= range.begin && o < range.end, inside) << stride << ' ' << offset << ' ' << o;
      }
    }
}

}  // namespace
}  // namespace ulpscope::test::convolution_rows
