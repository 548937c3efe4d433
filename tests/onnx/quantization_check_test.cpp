// A written file's quantizers against those of the model that it was made from.
#include "onnx/quantization_check.h"

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

/// x quantized by 'q' and back with this scale, `count` times.
Model quantized(std::vector<float> scales) {
  Model model(21);
  model.input("x", {4});
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::string n = std::to_string(i);
    model.node("QuantizeLinear", {i == 0 ? "x" : "y" + std::to_string(i - 1), "s" + n}, {"q" + n}, "quantize" + n);
    model.node("DequantizeLinear", {"q" + n, "s" + n}, {"y" + n}, "back" + n);
    *model.graph().add_initializer() = float_tensor("s" + n, {}, {scales[i]});
  }
  model.output("y" + std::to_string(scales.size() - 1));
  return model;
}

std::vector<QuantizationProblem> problems_of(std::vector<float> scales) {
  const std::string bytes = quantized(std::move(scales)).bytes();
  return check_quantization(std::as_bytes(std::span(bytes)), "model.onnx", {});
}

TEST(QuantizationCheck, NamesNodesAndCounts) {
  EXPECT_TRUE(problems_of({0.5F}).empty());
  const auto problems = problems_of({-1.0F});
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].node, "quantize0");
  EXPECT_EQ(problems[1].node, "back0");
  EXPECT_EQ(to_text(problems).substr(0, 26), "Quantization: 2 problems\n ");
  EXPECT_EQ(to_text({}), "");
}

TEST(QuantizationCheck, AWrittenFileMayHaveWhatTheModelHad) {
  const auto bad = problems_of({-1.0F}), good = problems_of({1.0F});
  EXPECT_NO_THROW(check_written_quantization(good, good, "typed.onnx"));
  EXPECT_NO_THROW(check_written_quantization(bad, good, "typed.onnx"));
  EXPECT_NO_THROW(check_written_quantization(bad, bad, "typed.onnx"));
}

TEST(QuantizationCheck, AWrittenFileHasNoProblemOfItsOwn) {
  const auto one = problems_of({-1.0F}), two = problems_of({-1.0F, -1.0F});
  for (const auto& before : {problems_of({1.0F}), one}) {
    try {
      check_written_quantization(before, two, "typed.onnx");
      FAIL() << "expected an InternalError";
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find("typed.onnx"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("negative"), std::string::npos) << error.what();
    }
  }
}

TEST(QuantizationCheck, AWarningOfTheWrittenFileAloneDoesNotStopIt) {
  EXPECT_NO_THROW(check_written_quantization({}, problems_of({1.0F, 2.0F}), "typed.onnx"));
}

}  // namespace
}  // namespace ulpscope::testing
