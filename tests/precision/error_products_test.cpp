// One network of errors, gradients and products against two that hand their values on.
#include "precision/error_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/build_helpers.h"
#include "engine/random_network.h"

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
  ErrorProductsOf(std::shared_ptr<const Network> network, std::span<const Tensor> inputs)
      : samples_{named(*network, inputs)},
        trials_(network, fp16_options(ConstraintMode::kNone, Fusion::kNone, true), samples_),
        maker_(trials_, trials_.assign(Requests(network->layers.size())), computing_layers(*network),
               network->outputs) {
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

TEST(ErrorProducts, AreThoseOfTwoNetworksInOne) {
  for (std::uint32_t number = 0; number < 60; ++number) {
    SCOPED_TRACE("network " + std::to_string(number));
    RandomNetwork random(number);
    ErrorProductsOf products(random.shared(), random.inputs());
    ASSERT_EQ(products->in_one->seeded(), products->of_two->seeded());
    std::mt19937 signs(number);
    for (int k = 0; k < 2; ++k) {
      const std::vector<Tensor> seeds = products.seeds(signs);
      const std::vector<double> one = products->in_one->project(products->one, seeds),
                                two = products->of_two->project(products->two, seeds);
      ASSERT_EQ(one.size(), two.size());
      double largest = 0;
      for (const double value : two) largest = std::max(largest, std::abs(value));
      for (std::size_t w = 0; w < one.size(); ++w) {
        EXPECT_NEAR(one[w], two[w], 1e-3 * std::abs(two[w]) + 1e-5 * largest) << "place " << w;
        EXPECT_EQ(products->one.kinds[w].exact, products->two.kinds[w].exact) << "place " << w;
        EXPECT_EQ(products->one.kinds[w].overflows, products->two.kinds[w].overflows) << "place " << w;
        EXPECT_EQ(products->in_one->incomplete(w), products->of_two->incomplete(w)) << "place " << w;
      }
    }
  }
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
