#include "compare/data_loader.h"

#include <gtest/gtest.h>

#include <limits>

#include "compare/shape_match.h"
#include "log_capture.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

TEST(DataLoader, InputsShareOneGenerator) {
  const auto map = generate_inputs({}, {{"a", DataType::kFloat32, Shape{2}}, {"b", DataType::kFloat64, Shape{1}}}, 0);
  ASSERT_EQ(map.size(), 2u);
  EXPECT_EQ(map[0].tensor.data<float>()[0], 0.417022004702574f);
  EXPECT_EQ(map[1].tensor.data<double>()[0], 0.00011437481734488664);
}

TEST(DataLoader, EachIterationHasItsSeed) {
  DataLoaderOptions options;
  options.iterations = 2;
  const std::vector<InputBinding> bindings = {{"a", DataType::kFloat32, Shape{3}}};
  const auto all = generate_inputs(options, bindings);
  options.seed = 2;
  EXPECT_EQ(all[1][0].tensor.data<float>()[0], generate_inputs(options, bindings, 0)[0].tensor.data<float>()[0]);
  EXPECT_NE(all[0][0].tensor.data<float>()[0], all[1][0].tensor.data<float>()[0]);
}

TEST(DataLoader, Float16IsRoundedOnce) {
  DataLoaderOptions options;
  options.val_range = ValueRange{1, 2};
  const auto map =
      generate_inputs(options, {{"a", DataType::kFloat16, Shape{100}}, {"b", DataType::kBFloat16, Shape{3}}}, 0);
  EXPECT_EQ(map[0].tensor.type(), DataType::kFloat16);
  EXPECT_EQ(map[1].tensor.type(), DataType::kBFloat16);
}

TEST(DataLoader, DynamicDimensionsBecomeOneWithAWarning) {
  LogCapture log;
  const auto map = generate_inputs({}, {{"dynamic_a", DataType::kFloat32, Shape{-1, 3}}}, 0);
  EXPECT_EQ(map[0].tensor.shape(), (Shape{1, 3}));
  EXPECT_TRUE(log.has("[W] Input tensor: dynamic_a [shape=(-1, 3)] | Will generate data of shape: (1, 3)."));
}

TEST(DataLoader, ShapesComeFromTheUserThenFromTheProfile) {
  LogCapture log;
  DataLoaderOptions options;
  options.default_shapes = {{"b", {4, 3}}, {"c", {5, 3}}};
  options.input_shapes = {{"in*", {2, 3}}, {"c", {-1, 3}}, {"missing", {1}}, {"d", {7}}};
  const auto map = generate_inputs(options,
                                   {{"input", DataType::kFloat32, Shape{-1, 3}},
                                    {"b", DataType::kFloat32, Shape{-1, 3}},
                                    {"c", DataType::kFloat32, Shape{-1, 3}},
                                    {"d", DataType::kFloat32, Shape{-1, 2}}},
                                   0);
  EXPECT_EQ(map[0].tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(map[1].tensor.shape(), (Shape{4, 3}));
  EXPECT_EQ(map[2].tensor.shape(), (Shape{5, 3}));
  EXPECT_EQ(map[3].tensor.shape(), (Shape{1, 2}));
  EXPECT_TRUE(log.has("c [shape=(-1, 3)] | Provided input shape: (-1, 3) is dynamic."));
  EXPECT_TRUE(log.has("Input tensor: missing | Metadata was provided, but the input does not exist"));
  EXPECT_TRUE(log.has("d [shape=(-1, 2)] | Cannot use provided custom shape: (7,)"));
}

TEST(DataLoader, ValuesOfAShapeTensorAreSet) {
  LogCapture log;
  DataLoaderOptions options;
  options.input_shapes = {{"sizes", {1, 3, 20, 30}}};
  const auto map = generate_inputs(options, {{"sizes", DataType::kInt64, Shape{4}}}, 0);
  EXPECT_EQ(map[0].tensor.shape(), Shape{4});
  EXPECT_EQ(map[0].tensor.data<std::int64_t>()[3], 30);
  EXPECT_TRUE(log.has("Assuming sizes is a shape tensor. Setting input values to: [ 1  3 20 30]"));
}

TEST(DataLoader, UnusedRangesAreNamed) {
  LogCapture log;
  DataLoaderOptions options;
  options.val_range.set("nobody", {0, 1});
  generate_inputs(options, {{"a", DataType::kFloat32, Shape{1}}}, 0);
  EXPECT_TRUE(log.has("[W] Extra items in val_range: {'nobody'}"));
}

TEST(DataLoader, ImpossibleRangesAreErrors) {
  DataLoaderOptions options;
  options.val_range = ValueRange{0, 300};
  EXPECT_THROW(generate_inputs(options, {{"a", DataType::kInt8, Shape{1}}}, 0), Error);
  options.val_range = ValueRange{0, std::numeric_limits<double>::infinity()};
  EXPECT_THROW(generate_inputs(options, {{"a", DataType::kInt32, Shape{1}}}, 0), Error);
}

TEST(DataLoader, LoadedDataIsAdapted) {
  LogCapture log;
  const TensorMap loaded = {{"extra", Tensor::scalar<float>(1)},
                            {"x", Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5})},
                            {"flat", Tensor::of<double>({4}, {1, 2, 3, 300})},
                            {"model/Name", Tensor::of<float>({1}, {7})}};
  const auto map = adapt_inputs(loaded, {{"x", DataType::kFloat32, Shape{3, 2}},
                                         {"flat", DataType::kInt8, Shape{2, -1}},
                                         {"name", DataType::kFloat32, Shape{1}}});
  ASSERT_EQ(map.size(), 3u);
  EXPECT_EQ(map[0].tensor.data<float>()[1], 3);  // permuted, not reshaped
  EXPECT_EQ(map[1].tensor.shape(), (Shape{2, 2}));
  EXPECT_EQ(map[1].tensor.type(), DataType::kInt8);
  EXPECT_EQ(map[2].tensor.data<float>()[0], 7);
  EXPECT_TRUE(log.has("Buffer dtype (float64) does not match expected input dtype (int8), attempting to cast."));
  EXPECT_TRUE(log.has("Some values in this input are out of range of int8."));
  EXPECT_TRUE(log.has("Buffer shape ((2, 3)) does not match expected input shape ((3, 2))."));
  EXPECT_TRUE(log.has("Buffer name (model/Name) does not match expected input name (name)."));
}

TEST(DataLoader, WhatCannotBeAdaptedIsAnError) {
  const TensorMap loaded = {{"x", Tensor::of<float>({3}, {0, 1, 2})}, {"y", Tensor::of<float>({1}, {0})}};
  EXPECT_THROW(adapt_inputs({}, {{"x", DataType::kFloat32, Shape{3}}}), Error);
  EXPECT_THROW(adapt_inputs(loaded, {{"y", DataType::kFloat32, Shape{1}}, {"absent", DataType::kFloat32, Shape{1}}}),
               Error);
  EXPECT_THROW(adapt_inputs(loaded, {{"x", DataType::kFloat32, Shape{2, 2}}}), Error);
  EXPECT_THROW(adapt_inputs({{"xy", loaded[0].tensor}},
                            {{"x", DataType::kFloat32, Shape{3}}, {"xy", DataType::kFloat32, Shape{3}}}),
               Error);
}

// As Polygraphy does, with a warning: data of another exporter's names is taken in its order.
TEST(DataLoader, NamesThatNothingFitsAreTakenByPlace) {
  const TensorMap loaded = {{"p", Tensor::of<float>({1}, {1})}, {"q", Tensor::of<float>({1}, {2})}};
  const TensorMap adapted =
      adapt_inputs(loaded, {{"a", DataType::kFloat32, Shape{1}}, {"b", DataType::kFloat32, Shape{1}}});
  EXPECT_EQ(adapted[0].tensor.values<float>()[0], 1);
  EXPECT_EQ(adapted[1].tensor.values<float>()[0], 2);
}

TEST(ShapeMatch, Wildcards) {
  EXPECT_TRUE(matches_wildcard("input_ids", "input_*"));
  EXPECT_TRUE(matches_wildcard("abc", "a?c"));
  EXPECT_TRUE(matches_wildcard("a1", "a[0-9]"));
  EXPECT_FALSE(matches_wildcard("a1", "a[!0-9]"));
  EXPECT_TRUE(matches_wildcard("a]b", "a[]]b"));
  EXPECT_TRUE(matches_wildcard("[x", "[x"));
  EXPECT_FALSE(matches_wildcard("input", "inp"));
  EXPECT_TRUE(matches_wildcard("aXbXc", "*X*c"));
}

}  // namespace
}  // namespace ulpscope
