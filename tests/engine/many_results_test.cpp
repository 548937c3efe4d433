// Outputs that are many lie in one block, which stays while somebody holds one of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

constexpr std::int64_t kLength = 64;

/// y_i = x + i.
std::shared_ptr<Network> sums(int count) {
  Model model;
  model.input("x", {kLength});
  for (int i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    *model.graph().add_initializer() = float_tensor("c" + n, {1}, {static_cast<float>(i)});
    model.node("Add", {"x", "c" + n}, {"y" + n}, "Add" + n);
    model.output("y" + n);
  }
  return model.load();
}

BuildOptions on_cpu() {
  BuildOptions options;
  options.backend = "cpu";
  options.threads = 1;
  return options;
}

std::ptrdiff_t apart(const Tensor& a, const Tensor& b) {
  return static_cast<const std::byte*>(b.raw()) - static_cast<const std::byte*>(a.raw());
}

TEST(ManyResults, LieInOneBlock) {
  const auto engine = Engine::build(sums(16), on_cpu());
  Tensor x(DataType::kFloat32, {kLength});
  std::ranges::fill(std::span(x.data<float>(), kLength), 0.5f);
  const std::vector<Tensor> inputs{x};
  std::vector<Tensor> first = engine->run(inputs);
  for (std::size_t i = 1; i < first.size(); ++i)
    EXPECT_EQ(apart(first[i - 1], first[i]), kLength * static_cast<std::ptrdiff_t>(sizeof(float)));
  const void* const place = first[0].raw();
  const Tensor held = first[7];
  first.clear();
  const std::vector<Tensor> second = engine->run(inputs);
  EXPECT_NE(second[0].raw(), place) << "somebody holds a tensor of that block";
  for (int i = 0; i < 16; ++i) EXPECT_EQ(floats(second[i]), std::vector<float>(kLength, 0.5f + static_cast<float>(i)));
  EXPECT_EQ(floats(held), std::vector<float>(kLength, 7.5f));
}

}  // namespace
}  // namespace ulpscope::testing
