// A search warns of long sums of mostly one sign in fp8, fp16 and bf16, and of no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/log_capture.h"
#include "engine/build_helpers.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Product {
  std::int64_t length;
  double low_x, low_w;  ///< Values go from these to 1.
  Precision precision = Precision::kFP8;
  Accumulation accumulation = Accumulation::kFP32;
};

/// What a search over one product logs.
std::string logged(const Product& product) {
  constexpr std::int64_t kRows = 16, kColumns = 16;
  Model model;
  model.input("x", {kRows, product.length});
  model.node("MatMul", {"x", "w"}, {"y"}, "Long");
  const Tensor w = values_in({product.length, kColumns}, product.low_w, 1, 9);
  *model.graph().add_initializer() = float_tensor("w", w.shape(), {w.values<float>().begin(), w.values<float>().end()});
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {kRows, product.length}, product.low_x, 1);
  SearchTask task = fp16_search();
  task.build.enabled = PrecisionSet{Precision::kFP32, product.precision};
  task.build.scales = {{"x", 1.0f / 127}};
  task.build.accumulation = product.accumulation;
  LogCapture log;
  run(data, *make_metric_criterion(MetricKind::kRelativeL2, 0.2), task);
  std::string text;
  for (const auto& line : log.lines()) text += line + "\n";
  return text;
}

TEST(OneSignedProducts, AreNamedWhereTheyAreLong) {
  const std::string text = logged({4096, 0, 0});
  EXPECT_THAT(text, HasSubstr("1 product(s) add up long sums of mostly one sign"));
  EXPECT_THAT(text, HasSubstr("Long (fp8, K = 4096, of one sign: 100 % and 100 % of its operands)"));
  EXPECT_THAT(text, HasSubstr("up to 0.062 in fp8 with fast accumulation"));
  EXPECT_THAT(text, HasSubstr("--accumulation hopper-fast in run or verify, or --keep"));
  EXPECT_THAT(text, Not(HasSubstr("in fp16")));
}

TEST(OneSignedProducts, AreNotNamedForSignsThatCancel) {
  for (const auto& [low_x, low_w] : {std::pair{-1.0, -1.0}, {0.0, -1.0}, {-1.0, 0.0}})
    EXPECT_THAT(logged({4096, low_x, low_w}), Not(HasSubstr("of mostly one sign")));
}

TEST(OneSignedProducts, AreNotNamedWhereTheyAreShortOrSaidToBeAddedUpSo) {
  EXPECT_THAT(logged({512, 0, 0}), Not(HasSubstr("of mostly one sign")));
  EXPECT_THAT(logged({4096, 0, 0, Precision::kFP16}), Not(HasSubstr("of mostly one sign")));
  EXPECT_THAT(logged({4096, 0, 0, Precision::kFP8, Accumulation::kHopper}), Not(HasSubstr("of mostly one sign")));
}

TEST(OneSignedProducts, OfHalvesHaveToBeVeryLong) {
  const std::string text = logged({70000, 0, 0, Precision::kFP16});
  EXPECT_THAT(text, HasSubstr("Long (fp16, K = 70000"));
  EXPECT_THAT(text, HasSubstr("about 0.00037 in fp16 and bf16"));
  EXPECT_THAT(text, HasSubstr("--accumulation hopper in run"));
}

}  // namespace
}  // namespace ulpscope::testing
