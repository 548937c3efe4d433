// Pairs of operators that share memory, rows or a batch in a way of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

constexpr Fusion kLevels[]{Fusion::kNone, Fusion::kPointwise, Fusion::kFull};

BuildOptions at(Fusion fusion) {
  BuildOptions options = tested_options();
  options.fusion = fusion;
  options.threads = 1;
  return options;
}

std::vector<float> normal(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& v : result) v = value(random);
  return result;
}

Tensor tensor(Shape shape, const std::vector<float>& values) {
  return Tensor::of<float>(std::move(shape), std::span<const float>(values));
}

/// y = s * view(s), s = Exp(x).
Model product_with_view(const std::string& view) {
  Model model;
  model.input("x", {64, 64});
  model.node("Exp", {"x"}, {"s"}, "Exp");
  if (view == "Reshape") {
    model.node("Reshape", {"s", "same"}, {"r"}, "View");
    *model.graph().add_initializer() = int64_tensor("same", {2}, {64, 64});
  } else if (view == "Slice") {
    model.node("Slice", {"s", "begin", "end", "axis"}, {"r"}, "View");
    *model.graph().add_initializer() = int64_tensor("begin", {1}, {0});
    *model.graph().add_initializer() = int64_tensor("end", {1}, {64});
    *model.graph().add_initializer() = int64_tensor("axis", {1}, {0});
  } else {
    model.node(view, {"s"}, {"r"}, "View");
  }
  model.node("Mul", {"s", "r"}, {"y"}, "Mul");
  model.output("y");
  return model;
}

TEST(SmallGraphs, AValueAndAViewOfItAreOfTheSameRun) {
  for (const char* view : {"Identity", "Reshape", "Dropout", "Flatten", "Slice"})
    for (const Fusion fusion : kLevels) {
      const auto engine = Engine::build(product_with_view(view).load(), at(fusion));
      for (std::uint32_t run = 0; run < 3; ++run) {
        const std::vector<float> x = normal(64 * 64, run);
        const std::vector<float> y = run_first(*engine, {tensor({64, 64}, x)});
        for (std::size_t i = 0; i < x.size(); ++i)
          ASSERT_NEAR(y[i], std::exp(2.0 * x[i]), 1e-5 * std::exp(2.0 * x[i])) << view << ", run " << run;
      }
    }
}

/// Sums over the last dimensions of x + b, x [2, 3, 17] and b [17], and `combine` of them with `other`.
void expect_sums_with(const std::string& combine, const Shape& axes, const Shape& other, bool constant) {
  const std::vector<float> b = normal(17, 1), t = normal(num_elements(other), 2);
  Model model;
  model.input("x", {2, 3, 17});
  model.node("Add", {"x", "b"}, {"s"}, "Add");
  model.node("ReduceSum", {"s", "axes"}, {"r"}, "Sum");
  model.node(combine, {"r", "t"}, {"y"}, "Combine");
  *model.graph().add_initializer() = float_tensor("b", {17}, b);
  *model.graph().add_initializer() = int64_tensor("axes", {static_cast<std::int64_t>(axes.size())}, axes);
  if (constant)
    *model.graph().add_initializer() = float_tensor("t", other, t);
  else
    model.input("t", other);
  model.output("y");
  const bool all = axes.size() == 3;
  for (const Fusion fusion : kLevels) {
    const auto engine = Engine::build(model.load(), at(fusion));
    for (std::uint32_t run = 3; run < 6; ++run) {
      const std::vector<float> x = normal(2 * 3 * 17, run);
      std::vector<Tensor> inputs{tensor({2, 3, 17}, x)};
      if (!constant) inputs.push_back(tensor(other, t));
      const std::vector<float> y = run_first(*engine, inputs);
      ASSERT_EQ(y.size(), all ? 1U : 2U);
      for (std::size_t row = 0; row < y.size(); ++row) {
        double sum = 0;
        for (std::size_t i = row * 51; i < (all ? 102 : row * 51 + 51); ++i)
          sum += static_cast<double>(x[i]) + b[i % 17];
        const double operand = t[t.size() == 1 ? 0 : row];
        ASSERT_NEAR(y[row], combine == "Add" ? sum + operand : sum * operand, 1e-4);
      }
    }
  }
}

TEST(SmallGraphs, RowsReadOneValueOfTheirOwnWhereTheirLoadsHaveNoSingleStride) {
  for (const char* combine : {"Add", "Mul"})
    for (const bool constant : {true, false})
      for (const Shape& other : {Shape{2, 1, 1}, Shape{1}, Shape{}}) {
        expect_sums_with(combine, {1, 2}, other, constant);
        if (num_elements(other) == 1) expect_sums_with(combine, {0, 1, 2}, other, constant);
      }
}

TEST(SmallGraphs, EachMatrixOfAConstantBatchIsReadByItsOwn) {
  for (const std::int64_t rows : {1, 4, 40}) {
    const std::vector<float> w = normal(3 * 5 * 7, 1), x = normal(3 * rows * 5, 2);
    Model model;
    model.input("x", {3, rows, 5});
    model.node("MatMul", {"x", "w"}, {"p"}, "Product");
    model.node("Add", {"p", "b"}, {"y"}, "Bias");
    *model.graph().add_initializer() = float_tensor("w", {3, 5, 7}, w);
    *model.graph().add_initializer() = float_tensor("b", {7}, normal(7, 3));
    model.output("y");
    const std::vector<float> b = normal(7, 3);
    for (const Fusion fusion : kLevels) {
      const std::vector<float> y = run_first(*Engine::build(model.load(), at(fusion)), {tensor({3, rows, 5}, x)});
      for (std::int64_t i = 0; i < 3 * rows; ++i)
        for (std::int64_t n = 0; n < 7; ++n) {
          double sum = b[static_cast<std::size_t>(n)];
          for (std::int64_t k = 0; k < 5; ++k)
            sum += static_cast<double>(x[static_cast<std::size_t>(i * 5 + k)]) *
                   w[static_cast<std::size_t>((i / rows * 5 + k) * 7 + n)];
          ASSERT_NEAR(y[static_cast<std::size_t>(i * 7 + n)], sum, 1e-5);
        }
    }
  }
}

constexpr std::int64_t kLong = 1 << 20;

/// What the model computes of kLong positive values as x, to a few units in the last place of float32.
void expect_sum(Model& model, const Shape& shape, const std::vector<float>& x, double expected) {
  model.input("x", shape);
  model.output("y");
  const std::vector<float> y = run_first(*Engine::build(model.load(), at(Fusion::kFull)), {tensor(shape, x)});
  ASSERT_EQ(y.size(), 1U);
  EXPECT_NEAR(y[0], expected, 1e-6 * expected);
}

TEST(SmallGraphs, LongSumsKeepTheirDigits) {
  std::vector<float> x = normal(kLong, 1), w = normal(kLong, 2);
  double sum = 0, squares = 0, products = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::fabs(x[i]);
    w[i] = std::fabs(w[i]);
    sum += x[i];
    squares += static_cast<double>(x[i]) * x[i];
    products += static_cast<double>(x[i]) * w[i];
  }
  for (const char* product : {"MatMul", "Einsum"}) {
    SCOPED_TRACE(product);
    Model model;
    auto& node = model.node(product, {"x", "w"}, {"y"}, "Product");
    if (node.op_type() == "Einsum") add_attribute(node, "equation", onnx::AttributeProto::STRING).set_s("ik,kj->ij");
    *model.graph().add_initializer() = float_tensor("w", {kLong, 1}, w);
    expect_sum(model, {1, kLong}, x, products);
  }
  for (const char* reduction : {"ReduceSum", "ReduceSumSquare"}) {
    SCOPED_TRACE(reduction);
    Model model(18);
    model.node(reduction, {"x", "axes"}, {"y"}, "Sum");
    *model.graph().add_initializer() = int64_tensor("axes", {1}, {1});
    expect_sum(model, {1, kLong}, x, std::string(reduction) == "ReduceSum" ? sum : squares);
  }
  Model model;
  auto& pool = model.node("AveragePool", {"x"}, {"y"}, "Pool");
  auto& kernel = add_attribute(pool, "kernel_shape", onnx::AttributeProto::INTS);
  kernel.add_ints(1024);
  kernel.add_ints(1024);
  expect_sum(model, {1, 1, 1024, 1024}, x, sum / kLong);
}

}  // namespace
}  // namespace ulpscope::testing
