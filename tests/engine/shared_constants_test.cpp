// One constant that several products read, each in its own way: what is prepared of it belongs to the way.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

struct Product {
  std::string op, output;
  std::vector<std::pair<std::string, std::int64_t>> attributes;
};

std::vector<float> waves(std::int64_t count, double step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(std::sin(step * static_cast<double>(i) + 0.3));
  return values;
}

std::shared_ptr<Network> network_of(std::span<const Product> products, const Dims& input, const Dims& weights) {
  Model model;
  model.input("x", input);
  *model.graph().add_initializer() = float_tensor("w", weights, waves(num_elements(Shape(weights)), 0.7));
  for (const Product& product : products) {
    auto& node = model.node(product.op, {"x", "w"}, {product.output}, product.output);
    for (const auto& [name, value] : product.attributes)
      add_attribute(node, name, onnx::AttributeProto::INT).set_i(value);
    model.output(product.output);
  }
  return model.load();
}

/// All of them in one network give the bits that each gives in a network of its own.
void expect_bits_of_single_ones(const std::vector<Product>& products, const Dims& input, const Dims& weights) {
  const Tensor x = Tensor::of<float>(Shape(input), waves(num_elements(Shape(input)), 1.1));
  BuildOptions options = fp16_options(ConstraintMode::kNone, Fusion::kFull, true);
  for (const std::string mode : {"fp32", "fp16", "int8"}) {
    options.enabled.set(Precision::kFP16, mode == "fp16");
    options.enabled.set(Precision::kINT8, mode == "int8");
    if (options.enabled.has_quantized()) {
      options.scales["x"] = 0.01f;
      for (const Product& product : products) options.scales[product.output] = 0.05f;
    }
    const auto together = Engine::build(network_of(products, input, weights), options)->run(std::vector<Tensor>{x});
    for (std::size_t i = 0; i < products.size(); ++i) {
      const auto alone = Engine::build(network_of({&products[i], 1}, input, weights), options);
      EXPECT_EQ(floats(together[i]), run_first(*alone, {x})) << mode << ", " << products[i].output;
    }
  }
}

TEST(SharedConstants, OfProductsOfMatrices) {
  expect_bits_of_single_ones({{"MatMul", "product", {}},
                              {"Gemm", "plain", {}},
                              {"Gemm", "transposed", {{"transB", 1}}},
                              {"Gemm", "both", {{"transA", 1}, {"transB", 1}}}},
                             {16, 16}, {16, 16});
}

TEST(SharedConstants, OfConvolutions) {
  expect_bits_of_single_ones({{"Conv", "groups", {{"group", 2}}},
                              {"ConvTranspose", "transposed", {}},
                              {"ConvTranspose", "in 2 groups", {{"group", 2}}},
                              {"ConvTranspose", "in 4 groups", {{"group", 4}}}},
                             {1, 8, 7, 7}, {8, 4, 3, 3});
  expect_bits_of_single_ones({{"Conv", "plain", {}}, {"ConvTranspose", "transposed", {}}}, {1, 8, 5, 5}, {8, 8, 3, 3});
}

}  // namespace
}  // namespace ulpscope::testing
