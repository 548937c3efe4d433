#include "graph/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/network_builder.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;

TEST(Evaluate, RoundsWhatTheFileDeclaresAsNarrow) {
  NetworkBuilder builder;
  builder.input("x", DataType::kFloat16);
  builder.constant("max", Tensor::scalar(65504.0f).cast(DataType::kFloat16));
  builder.layer("Add", {"x", "max"}, {"sum"}, "add");
  builder.layer("Sub", {"sum", "max"}, {"y"}, "sub");
  builder.output("y");
  builder.output("sum");
  for (const char* name : {"sum", "y"}) builder.network.tensor(builder.tensor(name)).type = DataType::kFloat16;
  const auto outputs =
      evaluate(builder.network, std::vector{Tensor::of<float>({2}, {1.0001f, 100}).cast(DataType::kFloat16)});
  EXPECT_EQ(outputs[0].type(), DataType::kFloat32);
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(0, INFINITY));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(65504, INFINITY));
  for (const char* name : {"sum", "y", "x"}) builder.network.tensor(builder.tensor(name)).type = DataType::kFloat32;
  EXPECT_THAT(evaluate(builder.network, std::vector{Tensor::of<float>({2}, {1, 100})})[0].values<float>(),
              ElementsAre(1, 100));
}

TEST(Evaluate, ChecksItsInputs) {
  NetworkBuilder builder;
  builder.input("x");
  builder.output("x");
  EXPECT_THROW(evaluate(builder.network, {}), Error);
  EXPECT_THROW(evaluate(builder.network, std::vector{Tensor::scalar<std::int64_t>(1)}), Error);
}

TEST(Evaluate, LeavesUnwantedOutputsOut) {
  NetworkBuilder builder;
  builder.input("x");
  builder.constant("k", Tensor::of<std::int64_t>({1}, {1}));
  builder.layer("TopK", {"x", "k"}, {"", "where"}, "top");
  builder.output("where");
  EXPECT_THAT(evaluate(builder.network, std::vector{Tensor::of<float>({3}, {1, 3, 2})})[0].values<std::int64_t>(),
              ElementsAre(1));
}

}  // namespace
}  // namespace ulpscope::testing
