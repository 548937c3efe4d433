// Layers in int8 against 64-bit integer arithmetic, bit for bit, at every fusion level and number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/build_helpers.h"
#include "engine/int8_reference.h"
#include "formats/rounding.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::Not;

using Scales = std::map<std::string, float>;

BuildOptions int8_options(Scales scales, Fusion fusion = Fusion::kFull, int threads = 1) {
  BuildOptions options = tested_options();
  options.enabled.set(Precision::kINT8);
  options.assume_lowest = true;
  options.fusion = fusion;
  options.threads = threads;
  options.scales = std::move(scales);
  return options;
}

/// The first output is `expected` to the last bit, and the named layers ran in int8.
void expect_bits(const Model& model, const Scales& scales, const std::vector<Tensor>& inputs,
                 const std::vector<float>& expected, const std::vector<std::string>& layers) {
  for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull})
    for (int threads : {1, 2}) {
      const auto engine = Engine::build(model.load(), int8_options(scales, fusion, threads));
      auto rows = report_of(*engine);
      for (const auto& name : layers) EXPECT_EQ(rows[name].precision, "int8") << name << ": " << rows[name].reason;
      ASSERT_THAT(run_first(*engine, inputs), ElementsAreArray(expected))
          << "fusion " << static_cast<int>(fusion) << ", threads " << threads;
    }
}

void weights(Model& model, const std::string& name, const Dims& dims, const std::vector<float>& values) {
  *model.graph().add_initializer() = float_tensor(name, dims, values);
}

std::vector<float> matmul_reference(const std::vector<float>& x, const std::vector<float>& w, std::size_t m,
                                    std::size_t k, std::size_t n, float scale) {
  const auto column = [&](std::size_t i) { return i % n; };
  const auto scales = weight_scales(w, n, column);
  const auto qx = quantized(x, scale), qw = quantized_weights(w, scales, column);
  std::vector<float> result;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      std::int64_t sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += qx[i * k + l] * qw[l * n + j];
      result.push_back(scaled(sum, scale, scales[j]));
    }
  return result;
}

TEST(Int8, MatMulWithConstantWeightsAndBias) {
  std::mt19937 random(1);
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {5, 33, 17}, {16, 384, 64}}) {
    const auto x = random_values(random, m * k, 3), w = random_values(random, k * n), b = random_values(random, n);
    Model model;
    model.input("x", {1, m, k});
    model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
    model.node("Add", {"b", "xw"}, {"z"}, "Bias");
    model.node("Relu", {"z"}, {"y"}, "Relu");
    weights(model, "w", {k, n}, w);
    weights(model, "b", {n}, b);
    model.output("y");
    auto expected = matmul_reference(x, w, static_cast<std::size_t>(m), static_cast<std::size_t>(k),
                                     static_cast<std::size_t>(n), 0.04f);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = std::max(expected[i] + b[i % static_cast<std::size_t>(n)], 0.0f);
    expect_bits(model, {{"x", 0.04f}}, {tensor({1, m, k}, x)}, expected, {"MatMul", "Bias"});
  }
}

TEST(Int8, LongSumsAreExact) {
  // 5000 * 127 * 127 needs 27 bits; in float32 arithmetic the sum is off from 1041 terms on.
  constexpr std::int64_t kLength = 5000;
  for (const bool constant : {true, false})
    for (const float last : {127.0f, 126.0f}) {
      std::vector<float> x(kLength, 127.0f), w(kLength * 3, 127.0f);
      x.back() = last;
      Model model;
      model.input("x", {1, kLength});
      if (constant)
        weights(model, "w", {kLength, 3}, w);
      else
        model.input("w", {kLength, 3});
      model.node("MatMul", {"x", "w"}, {"y"}, "MatMul");
      model.output("y");
      const std::int64_t sum = (kLength - 1) * 127 * 127 + static_cast<std::int64_t>(last) * 127;
      std::vector<Tensor> inputs{tensor({1, kLength}, x)};
      if (!constant) inputs.push_back(tensor({kLength, 3}, w));
      expect_bits(model, {{"x", 1.0f}, {"w", 1.0f}}, inputs, std::vector<float>(3, static_cast<float>(sum)),
                  {"MatMul"});
    }
}

TEST(Int8, LongRandomSums) {
  // Weights that are all large, so that the sums have to be cut even though k is that of real networks.
  std::mt19937 random(2);
  std::uniform_real_distribution<float> large(0.8f, 1.0f);
  const std::int64_t m = 3, k = 3000, n = 5;
  auto x = random_values(random, m * k, 3);
  std::vector<float> w(static_cast<std::size_t>(k * n));
  for (float& v : w) v = large(random);
  for (float& v : x) v = std::fabs(v);
  Model model;
  model.input("x", {m, k});
  model.node("MatMul", {"x", "w"}, {"y"}, "MatMul");
  weights(model, "w", {k, n}, w);
  model.output("y");
  expect_bits(model, {{"x", 0.02f}}, {tensor({m, k}, x)}, matmul_reference(x, w, 3, 3000, 5, 0.02f), {"MatMul"});
}

TEST(Int8, ProductsOfActivations) {
  std::mt19937 random(3);
  const std::size_t batch = 4, m = 7, k = 32, n = 9;
  const auto x = random_values(random, batch * m * k), z = random_values(random, batch * k * n);
  Model model;
  model.input("x", {2, 2, 7, 32});
  model.input("z", {2, 2, 32, 9});
  model.node("MatMul", {"x", "z"}, {"y"}, "MatMul");
  model.output("y");
  const auto qx = quantized(x, 0.03f), qz = quantized(z, 0.02f);
  std::vector<float> expected;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        std::int64_t sum = 0;
        for (std::size_t l = 0; l < k; ++l) sum += qx[(b * m + i) * k + l] * qz[(b * k + l) * n + j];
        expected.push_back(scaled(sum, 0.03f, 0.02f));
      }
  expect_bits(model, {{"x", 0.03f}, {"z", 0.02f}}, {tensor({2, 2, 7, 32}, x), tensor({2, 2, 32, 9}, z)}, expected,
              {"MatMul"});
}

TEST(Int8, GemmWithItsFactorsAndTranspositions) {
  std::mt19937 random(4);
  const std::size_t m = 6, k = 40, n = 11;
  for (const bool plain : {true, false}) {
    const auto a = random_values(random, m * k), b = random_values(random, n * k), c = random_values(random, n);
    Model model;
    model.input("a", {static_cast<std::int64_t>(k), static_cast<std::int64_t>(m)});
    auto& node = model.node("Gemm", {"a", "b", "c"}, {"y"}, "Gemm");
    add_attribute(node, "transA", onnx::AttributeProto::INT).set_i(1);
    add_attribute(node, "transB", onnx::AttributeProto::INT).set_i(1);
    if (!plain) {
      add_attribute(node, "alpha", onnx::AttributeProto::FLOAT).set_f(0.5f);
      add_attribute(node, "beta", onnx::AttributeProto::FLOAT).set_f(2.0f);
    }
    weights(model, "b", {11, 40}, b);
    weights(model, "c", {11}, c);
    model.output("y");
    const auto row = [&](std::size_t i) { return i / k; };
    const auto scales = weight_scales(b, n, row);
    const auto qa = quantized(a, 0.03f), qb = quantized_weights(b, scales, row);
    std::vector<float> expected;
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        std::int64_t sum = 0;
        for (std::size_t l = 0; l < k; ++l) sum += qa[l * m + i] * qb[j * k + l];
        const float product = scaled(sum, 0.03f, scales[j]);
        expected.push_back(plain ? product + c[j] : product * 0.5f + c[j] * 2.0f);
      }
    expect_bits(model, {{"a", 0.03f}}, {tensor({40, 6}, a)}, expected, {"Gemm"});
  }
}

struct ConvolutionCase {
  ConvolutionShape shape;
  bool bias = false;
};

void add_window(onnx::NodeProto& node, const ConvolutionShape& s) {
  const auto twice = [&](const char* name, std::int64_t value, int count) {
    auto& attribute = add_attribute(node, name, onnx::AttributeProto::INTS);
    for (int i = 0; i < count; ++i) attribute.add_ints(value);
  };
  twice("strides", s.stride, 2);
  twice("dilations", s.dilation, 2);
  twice("pads", s.pad, 4);
  add_attribute(node, "group", onnx::AttributeProto::INT).set_i(s.groups);
}

TEST(Int8, Convolutions) {
  std::mt19937 random(5);
  const std::vector<ConvolutionCase> cases{{{1, 3, 9, 8, 16, 3, 3, 1, 2, 1, 1}, true},
                                           {{2, 8, 6, 6, 8, 3, 3, 8, 1, 1, 1}, false},
                                           {{1, 6, 7, 9, 4, 3, 1, 2, 1, 2, 2}, true},
                                           {{1, 64, 5, 5, 10, 1, 1, 1, 1, 1, 0}, false}};
  for (const auto& [s, bias] : cases)
    for (const bool transposed : {false, true}) {
      const auto x = random_values(random, s.n * s.c * s.h * s.w, 2);
      const auto w = random_values(random, s.c * s.m / s.groups * s.kh * s.kw), b = random_values(random, s.m);
      Model model;
      model.input("x", {s.n, s.c, s.h, s.w});
      auto& node = bias ? model.node(transposed ? "ConvTranspose" : "Conv", {"x", "w", "b"}, {"y"}, "Conv")
                        : model.node(transposed ? "ConvTranspose" : "Conv", {"x", "w"}, {"y"}, "Conv");
      add_window(node, s);
      weights(model, "w", transposed ? Dims{s.c, s.m / s.groups, s.kh, s.kw} : Dims{s.m, s.c / s.groups, s.kh, s.kw},
              w);
      if (bias) weights(model, "b", {s.m}, b);
      model.output("y");
      const std::size_t area = static_cast<std::size_t>(s.kh * s.kw);
      const auto channel = [&](std::size_t i) {
        if (!transposed) return i / (area * static_cast<std::size_t>(s.c / s.groups));
        const std::size_t second = static_cast<std::size_t>(s.m / s.groups);
        return i / (area * second) / static_cast<std::size_t>(s.c / s.groups) * second + i / area % second;
      };
      const auto scales = weight_scales(w, static_cast<std::size_t>(s.m), channel);
      const auto qx = quantized(x, 0.05f), qw = quantized_weights(w, scales, channel);
      const auto sums = transposed ? convolve_transposed(s, qx, qw) : convolve(s, qx, qw);
      const std::size_t positions =
          static_cast<std::size_t>(transposed ? s.transposed_oh() * s.transposed_ow() : s.oh() * s.ow());
      std::vector<float> expected;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t c = i / positions % static_cast<std::size_t>(s.m);
        expected.push_back(scaled(sums[i], 0.05f, scales[c]) + (bias ? b[c] : 0.0f));
      }
      expect_bits(model, {{"x", 0.05f}}, {tensor({s.n, s.c, s.h, s.w}, x)}, expected, {"Conv"});
    }
}

TEST(Int8, LongConvolutionsAreExact) {
  const ConvolutionShape s{1, 512, 3, 4, 2, 3, 3, 1, 1, 1, 1};
  const std::vector<float> x(static_cast<std::size_t>(s.c * s.h * s.w), 127.0f);
  const std::vector<float> w(static_cast<std::size_t>(s.m * s.c * 9), 1.0f);
  Model model;
  model.input("x", {1, s.c, s.h, s.w});
  add_window(model.node("Conv", {"x", "w"}, {"y"}, "Conv"), s);
  weights(model, "w", {s.m, s.c, 3, 3}, w);
  model.output("y");
  const auto sums = convolve(s, quantized(x, 1.0f), std::vector<std::int64_t>(w.size(), 127));
  std::vector<float> expected;
  for (std::int64_t sum : sums) expected.push_back(scaled(sum, 1.0f, 1.0f / 127.0f));
  expect_bits(model, {{"x", 1.0f}}, {tensor({1, s.c, s.h, s.w}, x)}, expected, {"Conv"});
}

TEST(Int8, PointwiseLayersComputeOnIntegersTimesTheirScales) {
  std::mt19937 random(6);
  const auto x = random_values(random, 6 * 40), z = random_values(random, 40), c = random_values(random, 6 * 40);
  const auto real = [](float v, float scale, std::int64_t low = -128) {
    return static_cast<float>(quantized(v, scale, low)) * scale;
  };
  float largest = 0;
  for (float v : c) largest = std::max(largest, std::fabs(v));
  for (const std::string op : {"Add", "Mul"})
    for (const bool constant : {false, true}) {
      Model model;
      model.input("x", {6, 40});
      if (constant)
        weights(model, "c", {6, 40}, c);
      else
        model.input("z", {40});
      model.node(op, {"x", constant ? "c" : "z"}, {"y"}, "Layer");
      model.output("y");
      std::vector<float> expected;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float a = real(x[i], 0.02f), b = constant ? real(c[i], largest / 127.0f, -127) : real(z[i % 40], 0.01f);
        expected.push_back(op == "Add" ? a + b : a * b);
      }
      std::vector<Tensor> inputs{tensor({6, 40}, x)};
      if (!constant) inputs.push_back(tensor({40}, z));
      expect_bits(model, {{"x", 0.02f}, {"z", 0.01f}}, inputs, expected, {"Layer"});
    }
}

TEST(Int8, AveragesOfIntegersTimesTheirScale) {
  std::mt19937 random(7);
  const auto x = random_values(random, 2 * 3 * 4 * 4);
  for (const bool global : {false, true}) {
    Model model;
    model.input("x", {2, 3, 4, 4});
    auto& node = model.node(global ? "GlobalAveragePool" : "AveragePool", {"x"}, {"y"}, "Pool");
    if (!global) {
      auto& kernel = add_attribute(node, "kernel_shape", onnx::AttributeProto::INTS);
      auto& strides = add_attribute(node, "strides", onnx::AttributeProto::INTS);
      for (int i = 0; i < 2; ++i) kernel.add_ints(2), strides.add_ints(2);
    }
    model.output("y");
    // A scale of 2^-5: the averages are exact in any order.
    const auto q = quantized(x, 0.03125f);
    std::vector<float> expected;
    const std::size_t window = global ? 4 : 2;
    for (std::size_t c = 0; c < 6; ++c)
      for (std::size_t i = 0; i < 4; i += window)
        for (std::size_t j = 0; j < 4; j += window) {
          std::int64_t sum = 0;
          for (std::size_t a = 0; a < window; ++a)
            for (std::size_t b = 0; b < window; ++b) sum += q[c * 16 + (i + a) * 4 + j + b];
          expected.push_back(static_cast<float>(sum) * 0.03125f / static_cast<float>(window * window));
        }
    expect_bits(model, {{"x", 0.03125f}}, {tensor({2, 3, 4, 4}, x)}, expected, {"Pool"});
  }
}

TEST(Int8, ClampsAndTakesNaNForZero) {
  Model model;
  model.input("x", {6});
  model.node("Add", {"x", "x"}, {"y"}, "Add");
  model.output("y");
  expect_bits(model, {{"x", 0.5f}}, {tensor({6}, {0.25f, 0.75f, -1e9f, INFINITY, NAN, -0.75f})},
              {0, 2, -128, 127, 0, -2}, {"Add"});
}

TEST(Int8, OutputsAreStoredInTheNextHigherTypeAndBiasesNeverRoundedBefore) {
  std::mt19937 random(8);
  const auto x = random_values(random, 8 * 64), w = random_values(random, 64 * 32), b = random_values(random, 32);
  Model model;
  model.input("x", {8, 64});
  model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
  model.node("Add", {"xw", "b"}, {"z"}, "Bias");
  model.node("Neg", {"z"}, {"y"}, "Neg");
  weights(model, "w", {64, 32}, w);
  weights(model, "b", {32}, b);
  model.output("y");
  auto expected = matmul_reference(x, w, 8, 64, 32, 0.03f);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = -round_to_f16(expected[i] + b[i % 32]);
  for (Fusion fusion : {Fusion::kNone, Fusion::kFull}) {
    BuildOptions options = int8_options({{"x", 0.03f}}, fusion);
    options.enabled.set(Precision::kFP16);
    const auto engine = Engine::build(model.load(), options);
    auto rows = report_of(*engine);
    EXPECT_EQ(rows["MatMul"].precision, "int8");
    EXPECT_EQ(rows["Bias"].precision, "int8");
    EXPECT_EQ(rows["Bias"].reason, "the bias of a product: 'MatMul'");
    EXPECT_EQ(rows["Neg"].precision, "fp16");
    EXPECT_EQ(rows["Bias"].group, fusion == Fusion::kNone ? "MatMul + Bias" : "MatMul + Bias + Neg");
    EXPECT_THAT(run_first(*engine, {tensor({8, 64}, x)}), ElementsAreArray(expected));
  }
}

TEST(Int8, BatchNormalizationIsFoldedBeforeTheWeightsAreQuantized) {
  std::mt19937 random(9);
  const ConvolutionShape s{1, 4, 6, 6, 5, 3, 3, 1, 1, 1, 1};
  const auto x = random_values(random, s.c * s.h * s.w), w = random_values(random, s.m * s.c * 9);
  const std::vector<float> gamma{1, 2, 0.5f, 3, 1}, beta{0.5f, -1, 0, 2, 0.25f}, mean{0.125f, 0.5f, 0, -1, 2},
      variance{1, 4, 0.25f, 16, 1};
  Model model;
  model.input("x", {1, s.c, s.h, s.w});
  add_window(model.node("Conv", {"x", "w"}, {"c"}, "Conv"), s);
  auto& norm = model.node("BatchNormalization", {"c", "gamma", "beta", "mean", "variance"}, {"y"}, "Norm");
  add_attribute(norm, "epsilon", onnx::AttributeProto::FLOAT).set_f(0.0f);
  weights(model, "w", {s.m, s.c, 3, 3}, w);
  weights(model, "gamma", {5}, gamma);
  weights(model, "beta", {5}, beta);
  weights(model, "mean", {5}, mean);
  weights(model, "variance", {5}, variance);
  model.output("y");
  std::vector<float> folded = w, bias;
  for (std::size_t c = 0; c < 5; ++c) {
    const float scale = gamma[c] / std::sqrt(variance[c]);  // powers of two times small integers: exact
    for (std::size_t i = 0; i < 36; ++i) folded[c * 36 + i] *= scale;
    bias.push_back(beta[c] - mean[c] * scale);
  }
  const auto channel = [](std::size_t i) { return i / 36; };
  const auto scales = weight_scales(folded, 5, channel);
  const auto sums = convolve(s, quantized(x, 0.04f), quantized_weights(folded, scales, channel));
  std::vector<float> expected;
  for (std::size_t i = 0; i < sums.size(); ++i)
    expected.push_back(scaled(sums[i], 0.04f, scales[i / 36]) + bias[i / 36]);
  const auto engine = Engine::build(model.load(), int8_options({{"x", 0.04f}}));
  EXPECT_EQ(report_of(*engine)["Conv"].precision, "int8");
  EXPECT_THAT(run_first(*engine, {tensor({1, s.c, s.h, s.w}, x)}), ElementsAreArray(expected));
}

TEST(Int8, AttentionIsNotFusedAroundIntegers) {
  std::mt19937 random(10);
  const auto x = random_values(random, 2 * 8 * 16);
  Model model;
  model.input("x", {2, 8, 16});
  auto& transpose = model.node("Transpose", {"x"}, {"t"}, "Transpose");
  auto& perm = add_attribute(transpose, "perm", onnx::AttributeProto::INTS);
  for (int d : {0, 2, 1}) perm.add_ints(d);
  model.node("MatMul", {"x", "t"}, {"s"}, "Scores");
  model.node("Softmax", {"s"}, {"p"}, "Softmax");
  model.node("MatMul", {"p", "x"}, {"y"}, "Values");
  model.output("y");
  const Scales scales{{"x", 0.03f}, {"p", 1.0f / 127.0f}};
  const auto plain = Engine::build(model.load(), int8_options(scales, Fusion::kNone));
  const auto fused = Engine::build(model.load(), int8_options(scales));
  auto rows = report_of(*fused);
  for (const char* name : {"Scores", "Values"}) EXPECT_EQ(rows[name].precision, "int8");
  EXPECT_EQ(rows["Softmax"].precision, "fp32");
  EXPECT_EQ(rows["Values"].group, "Values");
  const std::vector<Tensor> inputs{tensor({2, 8, 16}, x)};
  EXPECT_THAT(run_first(*fused, inputs), ElementsAreArray(run_first(*plain, inputs)));
}

TEST(Int8, SurvivesAPlanFile) {
  std::mt19937 random(11);
  const auto x = random_values(random, 8 * 16), w = random_values(random, 16 * 8);
  Model model;
  model.input("x", {8, 16});
  model.node("MatMul", {"x", "w"}, {"m"}, "MatMul");
  model.node("Reshape", {"m", "shape"}, {"r"}, "Reshape");
  model.node("Add", {"r", "r"}, {"y"}, "Add");
  weights(model, "w", {16, 8}, w);
  *model.graph().add_initializer() = int64_tensor("shape", {1}, {64});
  model.output("y");
  BuildOptions options = int8_options({{"x", 0.03f}, {"m", 0.1f}});
  options.enabled.set(Precision::kFP16);
  const auto engine = Engine::build(model.load(), options);
  // The scale of m goes through the Reshape.
  EXPECT_EQ(report_of(*engine)["Add"].precision, "int8");
  const TemporaryFolder folder;
  engine->save(folder / "int8.plan");
  const auto loaded = Engine::load(folder / "int8.plan", {.threads = 1});
  EXPECT_EQ(report_of(*loaded)["Add"].precision, "int8");
  const std::vector<Tensor> inputs{tensor({8, 16}, x)};
  const auto expected = run_first(*engine, inputs);
  EXPECT_THAT(run_first(*loaded, inputs), ElementsAreArray(expected));
  auto real = matmul_reference(x, w, 8, 16, 8, 0.03f);
  EXPECT_THAT(expected, Not(ElementsAreArray(real)));
}

}  // namespace
}  // namespace ulpscope::testing
