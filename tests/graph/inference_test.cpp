#include "graph/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/rounding.h"
#include "graph/network_builder.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;

struct Inferred {
  const Network& network;
  InferredNetwork result;
  DataType type(const std::string& name) const { return result.types[network.find_tensor(name)]; }
  const std::optional<Shape>& shape(const std::string& name) const { return result.shapes[network.find_tensor(name)]; }
  const Tensor& value(const std::string& name) const { return result.values[network.find_tensor(name)]; }
};

TEST(Inference, TypesNeedNoShapes) {
  NetworkBuilder builder;
  builder.input("x", DataType::kFloat16);
  builder.constant("one", Tensor::scalar(1.0f).cast(DataType::kFloat16));
  builder.layer("Add", {"x", "one"}, {"y"}, "add");
  builder.layer("Less", {"y", "one"}, {"less"}, "less");
  builder.layer("Shape", {"y"}, {"s"}, "shape");
  infer_types(builder.network);
  EXPECT_EQ(builder.network.tensor(builder.tensor("y")).type, DataType::kFloat16);
  EXPECT_EQ(builder.network.tensor(builder.tensor("less")).type, DataType::kBool);
  EXPECT_EQ(builder.network.tensor(builder.tensor("s")).type, DataType::kInt64);
}

TEST(Inference, ShapesFlowAndDoNotFitAtTheLayerThatIsNamed) {
  NetworkBuilder builder;
  builder.input("a");
  builder.input("b");
  builder.layer("MatMul", {"a", "b"}, {"y"}, "product");
  infer_types(builder.network);
  const Inferred known{builder.network, infer(builder.network, {{2, 3}, {3, 5}})};
  EXPECT_EQ(known.shape("y"), (Shape{2, 5}));
  EXPECT_FALSE(known.value("y"));
  try {
    infer(builder.network, {{2, 3}, {4, 5}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'product'"), std::string::npos) << error.what();
  }
  EXPECT_THROW(infer(builder.network, {{2, 3}}), Error);
  EXPECT_THROW(infer(builder.network, {{2, -1}, {3, 5}}), Error);
}

/// x -> Shape -> Gather -> Concat -> Reshape, as exporters flatten.
TEST(Inference, ShapesThatTheNetworkComputesAreKnown) {
  NetworkBuilder builder;
  builder.input("x");
  builder.layer("Shape", {"x"}, {"shape"}, "shape_layer");
  builder.layer("Size", {"x"}, {"size"}, "size_layer");
  builder.constant("zero", Tensor::of<std::int64_t>({1}, {0}));
  builder.layer("Gather", {"shape", "zero"}, {"batch"}, "gather");
  builder.constant("rest", Tensor::of<std::int64_t>({1}, {-1}));
  auto& concat = builder.layer("Concat", {"batch", "rest"}, {"target"}, "concat");
  concat.attributes.set("axis", std::int64_t{0});
  builder.layer("Reshape", {"x", "target"}, {"y"}, "reshape");
  infer_types(builder.network);
  const Inferred known{builder.network, infer(builder.network, {{4, 3, 1 << 20}})};
  EXPECT_THAT(known.value("shape").values<std::int64_t>(), ElementsAre(4, 3, 1 << 20));
  EXPECT_THAT(known.value("size").values<std::int64_t>(), ElementsAre(12 << 20));
  EXPECT_EQ(known.shape("y"), (Shape{4, 3 << 20}));
  EXPECT_FALSE(known.value("y"));
}

TEST(Inference, ConstantsAreFoldedWithoutRoundingUpToALimit) {
  NetworkBuilder builder;
  const Tensor third = Tensor::of<float>({2}, {1.0f / 3, 2.0f / 3}).cast(DataType::kFloat16);
  builder.constant("half", third);
  builder.weight("more", Tensor::of<float>({2}, {4096, 1}).cast(DataType::kFloat16));
  builder.layer("Add", {"half", "more"}, {"sum"}, "add");
  builder.constant("i", Tensor::of<std::int64_t>({2}, {1, 2}));
  builder.layer("Add", {"i", "i"}, {"j"}, "add_integers");
  infer_types(builder.network);
  const Inferred known{builder.network, infer(builder.network, {})};
  EXPECT_EQ(known.type("sum"), DataType::kFloat16);
  const float expected = round_to_f16(1.0f / 3) + 4096;
  ASSERT_EQ(known.value("sum").type(), DataType::kFloat32);
  EXPECT_EQ(known.value("sum").values<float>()[0], expected);
  EXPECT_NE(expected, round_to_f16(expected));
  const Inferred limited{builder.network, infer(builder.network, {}, 1)};
  EXPECT_FALSE(limited.value("sum"));
  EXPECT_EQ(limited.shape("sum"), Shape{2});
  EXPECT_THAT(limited.value("j").values<std::int64_t>(), ElementsAre(2, 4));
}

TEST(Inference, RandomLayersAreNotFolded) {
  NetworkBuilder builder;
  builder.layer("RandomUniform", {}, {"r"}, "random").attributes.set("shape", std::vector<std::int64_t>{2});
  builder.constant("p", Tensor::of<float>({2}, {0.5f, 0.5f}));
  builder.layer("Bernoulli", {"p"}, {"b"}, "bernoulli");
  builder.constant("ratio", Tensor::scalar(0.5f));
  builder.constant("train", Tensor::scalar(true));
  builder.constant("test", Tensor::scalar(false));
  builder.layer("Dropout", {"p", "ratio", "train"}, {"d"}, "training");
  builder.layer("Dropout", {"p", "ratio", "test"}, {"e"}, "inference");
  infer_types(builder.network);
  const Inferred known{builder.network, infer(builder.network, {})};
  EXPECT_FALSE(known.value("r"));
  EXPECT_FALSE(known.value("b"));
  EXPECT_FALSE(known.value("d"));
  EXPECT_TRUE(known.value("e"));
}

}  // namespace
}  // namespace ulpscope::testing
