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
  const auto numeric = [&](const char* name) { return spec->numeric[network->find_layer(name)] != 0; };
  const auto folded = [&](const char* name) { return spec->folded[network->find_layer(name)] != 0; };
  for (const char* name : {"Total", "Scale", "Last"}) EXPECT_TRUE(numeric(name)) << name;
  for (const char* name : {"Shape", "Folded"}) EXPECT_FALSE(numeric(name)) << name;
  for (const char* name : {"Shape", "Folded"}) EXPECT_TRUE(folded(name)) << name;
  EXPECT_FALSE(folded("Scale"));
  EXPECT_EQ(spec->value(network->find_tensor("folded")).data<float>()[0], 4);
}

TEST(Specialization, ValuesPassThroughQuantization) {
  // Nothing of "First" reaches the output but through integers.
  Model model;
  model.input("x", {2, 3});
  model.node("Exp", {"x"}, {"e"}, "First");
  model.node("QuantizeLinear", {"e", "s", "z"}, {"q"}, "Q");
  model.node("Transpose", {"q"}, {"t"}, "Move");
  model.node("DequantizeLinear", {"t", "s", "z"}, {"d"}, "DQ");
  model.node("Neg", {"d"}, {"y"}, "Last");
  *model.graph().add_initializer() = float_tensor("s", {}, {0.5f});
  onnx::TensorProto& zero = *model.graph().add_initializer();
  zero.set_name("z");
  zero.set_data_type(onnx::TensorProto::INT8);
  zero.set_raw_data(std::string(1, '\0'));
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{2, 3}});
  for (const char* name : {"First", "Last"}) EXPECT_TRUE(spec->numeric[network->find_layer(name)]) << name;
}

TEST(Specialization, ValuesPassThroughProductsOfIntegers) {
  // As dynamic quantization writes it.
  Model model;
  model.input("x", {2, 3});
  model.node("Exp", {"x"}, {"e"}, "First");
  model.node("DynamicQuantizeLinear", {"e"}, {"q", "s", "z"}, "Quantize");
  model.node("MatMulInteger", {"q", "w", "z"}, {"sums"}, "Product");
  auto& cast = model.node("Cast", {"sums"}, {"floats"}, "Cast");
  add_attribute(cast, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT);
  model.node("Mul", {"floats", "half"}, {"y"}, "Last");
  *model.graph().add_initializer() = float_tensor("half", {}, {0.5f});
  onnx::TensorProto& weights = *model.graph().add_initializer();
  weights.set_name("w");
  weights.set_data_type(onnx::TensorProto::INT8);
  weights.add_dims(3);
  weights.add_dims(2);
  weights.set_raw_data(std::string(6, '\1'));
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{2, 3}});
  for (const char* name : {"First", "Last"}) EXPECT_TRUE(spec->numeric[network->find_layer(name)]) << name;
}

TEST(Specialization, ConstantsMadeFromShapesAreNotKeptForOtherShapes) {
  // y = x * rows of x: the factor is known before anything runs, and another one for other shapes.
  Model model;
  model.input("x", {-1, 2});
  model.node("Shape", {"x"}, {"shape"});
  model.node("Gather", {"shape", "zero"}, {"rows"});
  auto& cast = model.node("Cast", {"rows"}, {"factor"});
  add_attribute(cast, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT);
  model.node("Mul", {"x", "factor"}, {"y"}, "Scale");
  *model.graph().add_initializer() = int64_tensor("zero", {1}, {0});
  model.output("y");
  const auto engine = Engine::build(model.load(), fp16_options(ConstraintMode::kNone, Fusion::kNone, true));
  EXPECT_EQ(run_first(*engine, {Tensor::of<float>({1, 2}, {1, 2})}), (std::vector<float>{1, 2}));
  EXPECT_EQ(run_first(*engine, {Tensor::of<float>({2, 2}, {1, 2, 3, 4})}), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(run_first(*engine, {Tensor::of<float>({1, 2}, {5, 6})}), (std::vector<float>{5, 6}));
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
