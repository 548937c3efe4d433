// What weights take in formats, counted by hand, and which layers take one format.
#include "precision/weight_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;

void add_product(Model& model, const std::string& input, const std::string& name, std::int64_t rows,
                 std::int64_t columns, const std::string& weights = "") {
  const std::string constant = weights.empty() ? name + ".weight" : weights;
  model.node("MatMul", {input, constant}, {name + ".out"}, name);
  if (!weights.empty()) return;
  *model.graph().add_initializer() =
      float_tensor(constant, {rows, columns}, std::vector<float>(static_cast<std::size_t>(rows * columns), 0.5f));
}

std::shared_ptr<Network> attention() {
  Model model;
  model.input("x", {4, 192});
  for (const char* name : {"q", "k", "v"}) add_product(model, "x", name, 192, 128);
  model.node("Add", {"q.out", "k.out"}, {"a"}, "Add");
  model.node("Add", {"a", "v.out"}, {"b"}, "Add_1");
  add_product(model, "b", "o", 128, 192);
  add_product(model, "o.out", "again", 192, 128, "q.weight");
  model.output("again.out");
  return model.load();
}

double bits_per_weight(const Specialization& spec, const char* layer, Precision precision,
                       DataType number = DataType::kFloat32) {
  const StoredWeights stored = stored_weights(spec, spec.network->find_layer(layer), precision, number);
  return static_cast<double>(stored.bits) / static_cast<double>(stored.weights);
}

TEST(WeightBits, CountCodesAndScales) {
  const auto network = attention();
  const auto spec = specialize(*network, {{4, 192}});
  const double weights = 192 * 128;
  EXPECT_EQ(stored_weights(*spec, network->find_layer("q"), Precision::kFP32, DataType::kFloat32).weights, weights);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kFP32), 32);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kFP16), 16);
  EXPECT_EQ(bits_per_weight(*spec, "o", Precision::kINT4), 4 + 16.0 / 128);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kINT4Block64), 4 + 16.0 / 64);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kINT4Block64, DataType::kBFloat16), 4 + 16.0 / 64);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kINT8Weights), 8 + 32.0 / 192) << "a scale per column of 192";
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kFP8Weights, DataType::kFloat16), 8 + 32.0 / 192)
      << "in float32 beside float16, too, as the file has it";
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kNVFP4Weights), 4.5 + 32 / weights);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kMXFP8Weights), 8.25);
  EXPECT_EQ(bits_per_weight(*spec, "q", Precision::kMXFP4Weights), 4.25);
}

TEST(WeightBits, FormatsGoFromTheFewestBitsToTheMost) {
  using enum Precision;
  const auto network = attention();
  const auto spec = specialize(*network, {{4, 192}});
  const PrecisionSet enabled = with_smaller_blocks({kINT8Weights, kNVFP4Weights, kINT4, kFP16, kFP8});
  const auto formats = weight_formats(*spec, enabled, {kFP32}, DataType::kFloat32);
  EXPECT_EQ(formats.size(), 5u);
  EXPECT_THAT(formats.at(network->find_layer("o")), ElementsAre(kINT4, kNVFP4Weights, kINT8Weights, kFP32));
  EXPECT_THAT(formats.at(network->find_layer("q")), ElementsAre(kINT4Block64, kNVFP4Weights, kINT8Weights, kFP32))
      << "192 are no multiple of 128";
}

TEST(WeightBits, GroupsShareAnInputOrWeights) {
  const auto network = attention();
  const auto id = [&](const char* name) { return network->find_layer(name); };
  const auto groups = format_groups(*network, {id("q"), id("k"), id("v"), id("o"), id("again")});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0], ElementsAre(id("q"), id("k"), id("v"), id("again")));
  EXPECT_THAT(groups[1], ElementsAre(id("o")));
}

}  // namespace
}  // namespace ulpscope::testing
