// Products in formats of 8 and 4 bits: the CPU's kernels against one layer at a time, for every form, operand layout,
// level of fusion and number of threads. What the formats mean is compared with NumPy in
// tests/cli/test_element_formats.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/build_helpers.h"
#include "engine/int8_reference.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::Pointwise;

constexpr std::int64_t kRows = 5, kSum = 256, kColumns = 24;

struct Case {
  std::string name;
  Dims x, w;
  std::string op = "MatMul";
  std::int64_t trans_a = 0, trans_b = 0;
  bool computed = false;  ///< Both operands are activations.
};

std::vector<Case> cases() {
  return {{"plain", {kRows, kSum}, {kSum, kColumns}},
          {"batch", {2, 3, kSum}, {kSum, kColumns}},
          {"batches of weights", {2, kRows, kSum}, {2, kSum, kColumns}},
          {"transposed", {kRows, kSum}, {kColumns, kSum}, "Gemm", 0, 1},
          {"both transposed", {kSum, kRows}, {kColumns, kSum}, "Gemm", 1, 1},
          {"attention", {2, 3, kRows, kSum}, {2, 3, kSum, kColumns}, "MatMul", 0, 0, true}};
}

/// Product, bias, Relu.
Model model_of(const Case& what) {
  std::mt19937 random(7);
  Model model;
  model.input("x", what.x);
  if (what.computed)
    model.input("w", what.w);
  else
    *model.graph().add_initializer() =
        float_tensor("w", what.w, random_values(random, num_elements(Shape(what.w.begin(), what.w.end()))));
  *model.graph().add_initializer() = float_tensor("b", {kColumns}, random_values(random, kColumns));
  auto& node = model.node(what.op, {"x", "w"}, {"p"}, "Product");
  if (what.trans_a != 0) add_attribute(node, "transA", onnx::AttributeProto::INT).set_i(what.trans_a);
  if (what.trans_b != 0) add_attribute(node, "transB", onnx::AttributeProto::INT).set_i(what.trans_b);
  model.node("Add", {"p", "b"}, {"s"}, "Bias");
  model.node("Relu", {"s"}, {"y"}, "Relu");
  model.output("y");
  return model;
}

BuildOptions options_for(Precision form, bool half, Fusion fusion, int threads, const std::string& backend) {
  BuildOptions options = tested_options();
  options.enabled.set(form);
  options.enabled.set(Precision::kFP16, half);
  options.assume_lowest = true;
  options.fusion = fusion;
  options.threads = threads;
  options.backend = backend;
  options.scales = {{"x", 2.0f / 127}, {"w", 2.0f / 127}};
  return options;
}

class Formats : public ::testing::TestWithParam<Precision> {};

TEST_P(Formats, HaveTheSameResultsHoweverTheyRun) {
  const LayerForm& form = form_of(GetParam());
  for (const Case& what : cases()) {
    SCOPED_TRACE(what.name);
    const Model model = model_of(what);
    std::mt19937 random(3);
    std::vector<Tensor> inputs{
        tensor(what.x, random_values(random, num_elements(Shape(what.x.begin(), what.x.end()))))};
    if (what.computed)
      inputs.push_back(tensor(what.w, random_values(random, num_elements(Shape(what.w.begin(), what.w.end())))));
    const bool has_form = !(what.computed && form.is_of_weights());
    for (const bool half : {false, true})
      for (const Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull}) {
        const auto plain = Engine::build(model.load(), options_for(form.precision, half, fusion, 1, "plain"));
        EXPECT_EQ(report_of(*plain)["Product"].precision, has_form ? form.name : half ? "fp16" : "fp32");
        const auto expected = run_first(*plain, inputs);
        const auto one =
            run_first(*Engine::build(model.load(), options_for(form.precision, half, fusion, 1, "cpu")), inputs);
        const auto two =
            run_first(*Engine::build(model.load(), options_for(form.precision, half, fusion, 2, "cpu")), inputs);
        EXPECT_THAT(two, ElementsAreArray(one));
        double largest = 0, apart = 0;
        ASSERT_EQ(one.size(), expected.size());
        for (std::size_t i = 0; i < one.size(); ++i) {
          largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
          apart = std::max(apart, std::abs(static_cast<double>(one[i]) - static_cast<double>(expected[i])));
        }
        EXPECT_LE(apart, largest * (half ? 0x1p-10 : 1e-6)) << static_cast<int>(fusion);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         ::testing::Values(Precision::kFP8, Precision::kMXFP8, Precision::kNVFP4, Precision::kMXFP4,
                                           Precision::kINT8Weights, Precision::kFP8Weights, Precision::kMXFP8Weights,
                                           Precision::kNVFP4Weights, Precision::kMXFP4Weights, Precision::kINT4,
                                           Precision::kINT4Block64, Precision::kINT4Block32),
                         [](const auto& each) {
                           std::string name(name_of(each.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ulpscope::testing
