// Weights that are there before the first run.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "engine/build_helpers.h"
#include "runtime/executable.h"

namespace ulpscope::testing {
namespace {

constexpr std::int64_t kWidth = 128;
constexpr std::uint64_t kMatrix = kWidth * kWidth * sizeof(float);

std::shared_ptr<Network> products(int count) {
  Model model;
  model.input("x", {8, kWidth});
  std::string value = "x";
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    *model.graph().add_initializer() =
        float_tensor("w" + n, {kWidth, kWidth}, std::vector<float>(kWidth * kWidth, 0.01f * static_cast<float>(i + 1)));
    model.node("MatMul", {value, "w" + n}, {"y" + n}, "Product" + n);
    value = "y" + n;
  }
  model.output(value);
  return model.load();
}

TEST(PreparedWeights, AreAllThereBeforeTheFirstRun) {
  constexpr int kProducts = 3;
  const ScopedThreads threads(2);
  BuildOptions options;
  options.backend = "cpu";
  options.threads = 2;
  const auto network = products(kProducts);
  const std::vector<Shape> shapes{{8, kWidth}};
  const auto spec = specialize(*network, shapes);
  Executable executable(*network, assign_precisions(*spec, options), options, spec, WeightCache());
  const auto plan = executable.plan_for(shapes);
  const std::uint64_t before = held_element_bytes();
  plan->prepare();
  const std::uint64_t prepared = held_element_bytes();
  EXPECT_GE(prepared - before, kProducts * kMatrix);
  plan->run(std::vector<Tensor>{Tensor(DataType::kFloat32, shapes[0])});
  EXPECT_LT(held_element_bytes() - prepared, kMatrix);  // The activations.
}

}  // namespace
}  // namespace ulpscope::testing
