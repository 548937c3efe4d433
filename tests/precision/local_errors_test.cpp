// What single layers lose in lower precision.
#include "precision/local_errors.h"

#include <gtest/gtest.h>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

TEST(LocalErrors, StoreWhatInt8LayersStore) {
  Model model;
  model.input("x", {1, 2});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("w", {2, 2}, {1, 0.1f, 0.1f, 1});
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{1, 2}});
  BuildOptions options;
  options.enabled.set(Precision::kINT8);
  options.enabled.set(Precision::kFP16);
  options.assume_lowest = true;
  options.scales = {{"x", 0.01f}};
  const Assignment low = assign_precisions(*spec, options);
  const LayerId product = network->find_layer("Product");
  ASSERT_EQ(low.precision[product], Precision::kINT8);
  ASSERT_EQ(low.int8_output, DataType::kFloat16);
  const Tensor x = Tensor::of<float>({1, 2}, {0.33f, 0.77f});
  LocalErrors errors(*network, low, std::vector<LayerId>{product}, options, WeightCache());
  const auto result = errors.run(std::vector<Tensor>{x}, std::vector<TensorId>{network->find_tensor("y")});
  ASSERT_EQ(result.errors.size(), 1u);
  for (std::int64_t i = 0; i < 2; ++i) {
    const float exact = result.values[0].data<float>()[i], stored = exact + result.errors[0].error.data<float>()[i];
    EXPECT_NEAR(stored, round_value(stored, Rounding::kF16), 2e-8f) << "int8 layers store float16 here";
  }
}

}  // namespace
}  // namespace ulpscope::testing
