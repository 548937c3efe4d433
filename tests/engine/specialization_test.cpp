// What is known of a network before precisions are chosen.
#include "engine/specialization.h"

#include <gtest/gtest.h>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

/// y = x * table[length of x] and an integer output.
Model mixed() {
  Model model;
  model.input("x", {2, 3});
  model.node("Shape", {"x"}, {"shape"}, "Shape");
  model.node("ReduceSum", {"x"}, {"total"}, "Total");
  model.node("Greater", {"x", "total"}, {"above"}, "Above");
  model.node("Where", {"above", "x", "total"}, {"chosen"}, "Choose");
  model.node("Mul", {"chosen", "c"}, {"y"}, "Scale");
  model.node("Exp", {"x"}, {"unused"}, "Unused");
  model.node("Add", {"c", "c"}, {"folded"}, "Folded");
  model.node("Sub", {"y", "folded"}, {"z"}, "Last");
  *model.graph().add_initializer() = float_tensor("c", {1}, {2});
  model.output("z");
  model.output("shape");
  return model;
}

TEST(Specialization, TellsArithmeticFromWhatIsFoldedOrUnused) {
  const auto network = mixed().load();
  const auto spec = specialize(*network, {{2, 3}});
  const auto numeric = [&](const char* name) {
    return spec->numeric[static_cast<std::size_t>(network->find_layer(name))] != 0;
  };
  const auto folded = [&](const char* name) {
    return spec->folded[static_cast<std::size_t>(network->find_layer(name))] != 0;
  };
  for (const char* name : {"Total", "Scale", "Last"}) EXPECT_TRUE(numeric(name)) << name;
  for (const char* name : {"Shape", "Folded"}) EXPECT_FALSE(numeric(name)) << name;
  for (const char* name : {"Shape", "Folded"}) EXPECT_TRUE(folded(name)) << name;
  EXPECT_FALSE(folded("Scale"));
  EXPECT_EQ(spec->value(network->find_tensor("folded")).data<float>()[0], 4);
}

TEST(Specialization, NamesTheLayerThatDoesNotFit) {
  Model model;
  model.input("x", {2, 3});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  model.output("y");
  const auto network = model.load();
  EXPECT_EQ(*specialize(*network, {{2, 3}})->shape(network->find_tensor("y")), (Shape{2, 2}));
  expect_error(ErrorCode::kInvalidFile, {"Product"}, [&] { specialize(*network, {{2, 4}}); });
}

}  // namespace
}  // namespace ulpscope::testing
