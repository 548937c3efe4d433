#include "graph/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/name_match.h"
#include "graph/network_builder.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

Network example() {
  NetworkBuilder builder;
  builder.input("x");
  builder.constant("(Unnamed Layer* 1) [Constant]_output", Tensor::scalar(1.0f));
  builder.layer("Add", {"x", "(Unnamed Layer* 1) [Constant]_output"}, {"a.sum"}, "add");
  builder.layer("Shape", {"a.sum"}, {"s"}, "shape");
  builder.layer("Relu", {"a.sum"}, {"b.relu"}, "relu");
  builder.output("b.relu");
  return std::move(builder.network);
}

Words outputs_of(const Network& network) {
  Words names;
  for (TensorId id : network.outputs) names.push_back(network.tensor(id).name);
  return names;
}

Words marked(const Words& names) {
  Network network = example();
  mark_outputs(network, names);
  return outputs_of(network);
}

TEST(Outputs, MarkAllLeavesConstantsAndShapesOut) {
  EXPECT_THAT(marked({"mark", "all"}), ElementsAre("a.sum", "b.relu"));
  EXPECT_THAT(marked({"*"}), ElementsAre("a.sum", "b.relu"));
}

TEST(Outputs, NamesReplaceTheOutputs) {
  EXPECT_THAT(marked({"s", "a.sum", "s"}), ElementsAre("s", "a.sum"));
  EXPECT_THAT(marked({"?.*"}), ElementsAre("a.sum", "b.relu"));
  EXPECT_THAT(marked({"[!a].*"}), ElementsAre("b.relu"));
  EXPECT_THAT(marked({"(Unnamed Layer* 1) [Constant]_output"}), ElementsAre("(Unnamed Layer* 1) [Constant]_output"));
}

TEST(Outputs, UnknownNamesAreErrorsWithSuggestions) {
  Network network = example();
  try {
    mark_outputs(network, Words{"a.summ"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("'a.summ'; did you mean 'a.sum'"), std::string::npos) << error.what();
  }
  EXPECT_THAT(outputs_of(network), ElementsAre("b.relu"));
  EXPECT_THROW(mark_outputs(network, Words{"nothing*"}), Error);
}

TEST(Outputs, UnmarkTakesAway) {
  Network network = example();
  mark_outputs(network, Words{"mark", "all"});
  unmark_outputs(network, Words{"a*", "s"});
  EXPECT_THAT(outputs_of(network), ElementsAre("b.relu"));
  EXPECT_THROW(unmark_outputs(network, Words{"c.relu"}), Error);
  EXPECT_THROW(unmark_outputs(network, Words{"b.relu"}), Error);
}

TEST(NameMatch, SimilarNamesComeClosestFirst) {
  const Words names{"conv_10", "conv_1", "Conv_1", "relu"};
  EXPECT_THAT(similar_names("conv_1x", names, 2), ElementsAre("conv_10", "conv_1"));
  EXPECT_TRUE(similar_names("zzzzzzzz", names).empty());
}

}  // namespace
}  // namespace ulpscope::testing
