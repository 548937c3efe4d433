// One network of errors, gradients and products against two that hand their values on.
#include "precision/error_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/build_helpers.h"
#include "engine/random_network.h"
#include "precision/local_errors.h"

namespace ulpscope::testing {
namespace {

TensorMap named(const Network& network, std::span<const Tensor> inputs) {
  TensorMap result;
  for (std::size_t i = 0; i < inputs.size(); ++i) result.push_back({network.tensor(network.inputs[i]).name, inputs[i]});
  return result;
}

std::vector<LayerId> computing_layers(const Network& network) {
  std::vector<LayerId> result;
  for (const LayerId id : network.layers.ids())
    if (network.layer(id).op->precision == PrecisionRule::kCompute) result.push_back(id);
  return result;
}

struct Both {
  std::shared_ptr<ErrorProducts> in_one, of_two;
  ErrorProducts::Sample one, two;
};

/// What is compared, for the only sample of `trials`.
class ErrorProductsOf {
 public:
  ErrorProductsOf(std::shared_ptr<const Network> network, std::span<const Tensor> inputs,
                  ErrorProducts::Fold fold = ErrorProducts::Fold::kSum)
      : samples_{named(*network, inputs)},
        trials_(network, fp16_options(ConstraintMode::kNone, Fusion::kNone, true), samples_),
        maker_(trials_, trials_.assign(Requests(network->layers.size())), computing_layers(*network), network->outputs,
               fold) {
    both_.in_one = maker_.make(0, true);
    both_.of_two = maker_.make(0, false);
    both_.one = both_.in_one->start(trials_.inputs(0));
    both_.two = both_.of_two->start(trials_.inputs(0));
  }
  Both& operator*() { return both_; }
  Both* operator->() { return &both_; }

  std::vector<Tensor> seeds(std::mt19937& random) {
    std::vector<Tensor> result;
    for (const TensorId id : both_.of_two->seeded()) {
      Tensor& seed = result.emplace_back(DataType::kFloat32, *trials_.specialization()->shape(id));
      for (std::int64_t i = 0; i < seed.size(); ++i) seed.data<float>()[i] = random() % 2 == 0 ? 1.0f : -1.0f;
    }
    return result;
  }

 private:
  std::vector<TensorMap> samples_;
  Trials trials_;
  ErrorProductsMaker maker_;
  Both both_;
};

void expect_alike(ErrorProductsOf& products, std::uint32_t seed) {
  ASSERT_EQ(products->in_one->seeded(), products->of_two->seeded());
  std::mt19937 signs(seed);
  for (int k = 0; k < 2; ++k) {
    const std::vector<Tensor> seeds = products.seeds(signs);
    const std::vector<double> one = products->in_one->project(products->one, seeds),
                              two = products->of_two->project(products->two, seeds);
    ASSERT_EQ(one.size(), two.size());
    double largest = 0;
    for (const double value : two) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0);
    for (std::size_t w = 0; w < one.size(); ++w) {
      EXPECT_NEAR(one[w], two[w], 1e-3 * std::abs(two[w]) + 1e-5 * largest) << "place " << w;
      EXPECT_EQ(products->one.kinds[w].exact, products->two.kinds[w].exact) << "place " << w;
      EXPECT_EQ(products->one.kinds[w].overflows, products->two.kinds[w].overflows) << "place " << w;
      EXPECT_EQ(products->in_one->incomplete(w), products->of_two->incomplete(w)) << "place " << w;
    }
  }
}

TEST(ErrorProducts, AreThoseOfTwoNetworksInOne) {
  for (std::uint32_t number = 0; number < 60; ++number) {
    SCOPED_TRACE("network " + std::to_string(number));
    RandomNetwork random(number);
    for (const auto fold : {ErrorProducts::Fold::kSum, ErrorProducts::Fold::kChannelSquares}) {
      ErrorProductsOf products(random.shared(), random.inputs(), fold);
      expect_alike(products, number);
    }
  }
}

TEST(ErrorProducts, SquaresOfChannelsAreMeansOverNeighbors) {
  EXPECT_DOUBLE_EQ(squares_of_channels(std::vector<float>{3}), 9);
  EXPECT_DOUBLE_EQ(squares_of_channels(std::vector<float>{3, -3}), (18 + 0) / 2.0);
  // 1, 4, and 16, which is all of them.
  EXPECT_DOUBLE_EQ(squares_of_channels(std::vector<float>{1, 2, -1, -2, 5, 1}), (36 + 36 + 36) / 3.0);
  const std::vector<float> ones(1024, 1);
  EXPECT_DOUBLE_EQ(squares_of_channels(ones), 1024 * (1 + 4 + 16 + 64 + 256) / 5.0);
  EXPECT_EQ(squares_of_channels({}), 0);
}

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Images on the way: a residual block, a pool, channels side by side; then a mean, which is none.
std::shared_ptr<Network> images() {
  Model model;
  model.input("x", {2, 3, 6, 5});
  for (const auto& [number, in] : {std::pair{1, 3}, std::pair{2, 4}}) {
    const std::string n = std::to_string(number);
    auto& node = model.node("Conv", {number == 1 ? "x" : "a", "w" + n}, {"c" + n}, "Conv" + n);
    auto& pads = add_attribute(node, "pads", onnx::AttributeProto::INTS);
    for (int i = 0; i < 4; ++i) pads.add_ints(1);
    *model.graph().add_initializer() =
        float_tensor("w" + n, {4, in, 3, 3}, random_values(static_cast<std::size_t>(36 * in), 7));
    if (number == 1) model.node("Sigmoid", {"c1"}, {"a"}, "Sigmoid");
  }
  model.node("Add", {"a", "c2"}, {"sum"}, "Add");
  add_attribute(model.node("Concat", {"sum", "a"}, {"wide"}, "Wide"), "axis", onnx::AttributeProto::INT).set_i(1);
  auto& pool = model.node("MaxPool", {"wide"}, {"small"}, "Pool");
  auto& kernel = add_attribute(pool, "kernel_shape", onnx::AttributeProto::INTS);
  for (int i = 0; i < 2; ++i) kernel.add_ints(2);
  model.node("Mul", {"small", "factor"}, {"scaled"}, "Scale");
  model.node("GlobalAveragePool", {"scaled"}, {"y"}, "Mean");
  *model.graph().add_initializer() = float_tensor("factor", {8, 1, 1}, random_values(8, 3));
  model.output("y");
  return model.load();
}

TEST(ErrorProducts, AreThoseOfTwoNetworksThatHandOnImages) {
  const auto network = images();
  const std::vector<Tensor> inputs{Tensor::of<float>({2, 3, 6, 5}, random_values(180, 1))};
  for (const auto fold : {ErrorProducts::Fold::kSum, ErrorProducts::Fold::kChannelSquares}) {
    ErrorProductsOf products(network, inputs, fold);
    expect_alike(products, 5);
  }
}

TEST(ErrorProducts, AreThoseOfTwoNetworksThatHandOnComparisonsOfImages) {
  Model model;
  model.input("x", {2, 3, 6, 5});
  model.node("Conv", {"x", "w"}, {"c"}, "Conv");
  *model.graph().add_initializer() = float_tensor("w", {4, 3, 3, 3}, random_values(108, 7));
  model.node("Less", {"c", "x0"}, {"small"}, "Less");
  *model.graph().add_initializer() = float_tensor("x0", {4, 1, 1}, random_values(4, 3));
  model.node("Where", {"small", "c", "x0"}, {"y"}, "Where");
  model.output("y");
  ErrorProductsOf products(model.load(), std::vector<Tensor>{Tensor::of<float>({2, 3, 6, 5}, random_values(180, 1))});
  expect_alike(products, 5);
}

TEST(Images, AreWhatSlidingWindowsReadAndMake) {
  const auto network = images();
  const auto spec = specialize(*network, {{2, 3, 6, 5}});
  const Images found = images_of(*spec);
  std::vector<std::string> names;
  for (const TensorId id : network->tensors.ids())
    if (found[id]) names.push_back(network->tensor(id).name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("x", "c1", "a", "c2", "sum", "wide", "small", "scaled"));
}

/// z = y + y of y = op(x, x).
std::shared_ptr<Network> twice(const std::string& op) {
  Model model;
  model.input("x", {2});
  model.node(op, {"x", "x"}, {"y"}, "First");
  model.node("Add", {"y", "y"}, {"z"}, "Second");
  model.output("z");
  return model.load();
}

TEST(ErrorProducts, CountAnOverflowAsAVeryLargeError) {
  ErrorProductsOf products(twice("Mul"), std::vector<Tensor>{Tensor::of<float>({2}, {1000, 1})});
  const std::vector<Tensor> seeds{Tensor::of<float>({2}, {1, 1})};
  const std::vector<double> one = products->in_one->project(products->one, seeds),
                            two = products->of_two->project(products->two, seeds);
  EXPECT_GT(one[0], 1e19);
  EXPECT_GT(two[0], 1e19);
  EXPECT_TRUE(products->one.kinds[0].overflows);
  EXPECT_EQ(products->one.instead, nullptr);
}

TEST(ErrorProducts, LeaveWhatIsNotANumberToTheOtherWay) {
  // inf - inf, in float16 only.
  ErrorProductsOf products(twice("Sub"), std::vector<Tensor>{Tensor::of<float>({2}, {1e6f, 1})});
  const std::vector<Tensor> seeds{Tensor::of<float>({2}, {1, 1})};
  for (int k = 0; k < 2; ++k) {
    const std::vector<double> one = products->in_one->project(products->one, seeds),
                              two = products->of_two->project(products->two, seeds);
    EXPECT_NE(products->one.instead, nullptr);
    EXPECT_EQ(one, two);
    EXPECT_GT(one[0], 1e19);
    EXPECT_TRUE(products->one.kinds[0].overflows);
  }
}

}  // namespace
}  // namespace ulpscope::testing
