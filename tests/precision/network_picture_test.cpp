// What an answer tells of the network.
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "engine/build_helpers.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

/// A bias is one layer with a product of elements. Where that is kept, it runs beside it, and the picture says so.
TEST(NetworkPicture, HasBiasesInThePrecisionOfTheirProducts) {
  constexpr std::int64_t kSum = 64, kColumns = 32;
  Model model;
  model.input("x", {16, kSum});
  model.node("MatMul", {"x", "w"}, {"product"}, "Product");
  model.node("Add", {"product", "b"}, {"y"}, "Bias");
  const Tensor w = values_in({kSum, kColumns}, -1, 1, 7), b = values_in({kColumns}, -1, 1, 8);
  *model.graph().add_initializer() = float_tensor("w", w.shape(), {w.values<float>().begin(), w.values<float>().end()});
  *model.graph().add_initializer() = float_tensor("b", b.shape(), {b.values<float>().begin(), b.values<float>().end()});
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {16, kSum}, -1, 1);
  SearchTask task = fp16_search();
  task.build.enabled = PrecisionSet{Precision::kFP32, Precision::kFP16, Precision::kFP8};
  task.build.scales = {{"x", 1.0f / 127}};
  task.ladder = {Precision::kFP16};
  for (const auto& [tolerance, product, bias] : {std::tuple(0.5, std::optional<Precision>(), Precision::kFP8),
                                                 std::tuple(5e-3, std::optional(Precision::kFP16), Precision::kFP16)}) {
    const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, tolerance), task);
    const auto rows = kept_rows(answer);
    EXPECT_EQ(rows.contains("Product") ? std::optional(rows.at("Product").precision) : std::nullopt, product);
    EXPECT_FALSE(rows.contains("Bias"));
    ASSERT_EQ(answer.network.size(), 2U);
    EXPECT_EQ(answer.network[0].low, Precision::kFP8);
    EXPECT_EQ(answer.network[1].low, bias);
  }
}

}  // namespace
}  // namespace ulpscope::testing
