// Which layers have an int8 form, and which tensors need scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/build_helpers.h"
#include "engine/element_readers.h"
#include "engine/int8.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> names(const Specialization& spec, const std::vector<TensorId>& ids) {
  std::vector<std::string> result;
  for (TensorId id : ids) result.push_back(spec.network->tensor(id).name);
  return result;
}

std::vector<std::string> with_form(const Specialization& spec) {
  std::vector<std::string> result;
  for (LayerId l : spec.network->layers.ids())
    if (has_int8_form(spec, l)) result.push_back(spec.network->layers[l].name);
  return result;
}

void constant(Model& model, const std::string& name, const std::vector<std::int64_t>& shape, float value = 0.5f) {
  std::int64_t count = 1;
  for (std::int64_t d : shape) count *= d;
  *model.graph().add_initializer() =
      float_tensor(name, shape, std::vector<float>(static_cast<std::size_t>(count), value));
}

TEST(Int8Form, AProductOwnsItsBiasAndNothingElse) {
  Model model;
  model.input("x", {2, 3, 4});
  model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
  model.node("Add", {"b", "xw"}, {"z"}, "Bias");
  model.node("Add", {"z", "x2"}, {"y"}, "Residual");
  model.input("x2", {2, 3, 5});
  constant(model, "w", {4, 5});
  constant(model, "b", {5});
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{2, 3, 4}, {2, 3, 5}});
  EXPECT_THAT(with_form(*spec), ElementsAre("MatMul", "Residual"));
  const LayerId product = network->find_layer("MatMul"), bias = network->find_layer("Bias");
  EXPECT_EQ(spec->bias[product], bias);
  EXPECT_EQ(spec->product_of_bias(bias), product);
  EXPECT_EQ(spec->bias[bias], kNone);
  EXPECT_EQ(spec->product_of_bias(network->find_layer("Residual")), kNone);
  EXPECT_THAT(names(*spec, quantized_inputs(*spec, product)), ElementsAre("x"));
  EXPECT_THAT(names(*spec, int8_tensors(*spec)), ::testing::UnorderedElementsAre("x", "z", "x2"));
}

TEST(Int8Form, ABiasWhoseProductSomebodyElseReadsBelongsToNobody) {
  Model model;
  model.input("x", {3, 4});
  model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
  model.node("Add", {"xw", "b"}, {"y"}, "Bias");
  constant(model, "w", {4, 5});
  constant(model, "b", {5});
  model.output("xw");
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{3, 4}});
  EXPECT_EQ(spec->bias[network->find_layer("MatMul")], kNone);
  EXPECT_THAT(with_form(*spec), ElementsAre("MatMul"));
}

TEST(Int8Form, ConvolutionsNeedConstantWeightsAndABiasAlongTheirChannels) {
  Model model;
  model.input("x", {1, 3, 8, 8});
  model.input("v", {2, 3, 3, 3});
  model.node("Conv", {"x", "w"}, {"c"}, "Conv");
  model.node("Add", {"c", "b"}, {"d"}, "Bias");
  model.node("Conv", {"x", "v"}, {"e"}, "Dynamic");
  model.node("Add", {"d", "per_row"}, {"f"}, "PerRow");
  model.node("Add", {"f", "e"}, {"y"}, "Sum");
  model.node("GlobalAveragePool", {"y"}, {"p"}, "Pool");
  constant(model, "w", {2, 3, 3, 3});
  constant(model, "b", {2, 1, 1});
  constant(model, "per_row", {6});
  model.output("p");
  const auto network = model.load();
  const auto spec = specialize(*network, {{1, 3, 8, 8}, {2, 3, 3, 3}});
  EXPECT_THAT(with_form(*spec), ElementsAre("Conv", "PerRow", "Sum", "Pool"));
  EXPECT_EQ(spec->bias[network->find_layer("Conv")], network->find_layer("Bias"));
}

TEST(Int8Form, ANormalizationInPointwiseLayersStaysFloat) {
  for (const bool reciprocal : {false, true}) {
    Model model;
    model.input("x", {4, 8});
    model.input("r", {4, 8});
    model.node("Add", {"x", "r"}, {"h"}, "Residual");
    auto& mean = model.node("ReduceMean", {"h"}, {"m"}, "Mean");
    model.node("Sub", {"h", "m"}, {"d"}, "Sub");
    model.node("Mul", {"d", "d"}, {"q"}, "Square");
    auto& variance = model.node("ReduceMean", {"q"}, {"v"}, "Variance");
    for (auto* node : {&mean, &variance}) add_attribute(*node, "axes", onnx::AttributeProto::INTS).add_ints(-1);
    model.node("Add", {"v", "eps"}, {"ve"}, "Epsilon");
    model.node("Sqrt", {"ve"}, {"s"}, "Sqrt");
    if (reciprocal) {
      model.node("Reciprocal", {"s"}, {"i"}, "Reciprocal");
      model.node("Mul", {"d", "i"}, {"n"}, "Normalize");
    } else {
      model.node("Div", {"d", "s"}, {"n"}, "Normalize");
    }
    model.node("Mul", {"n", "gamma"}, {"g"}, "Scale");
    model.node("Add", {"g", "beta"}, {"o"}, "Shift");
    model.node("Mul", {"o", "half"}, {"hv"}, "Half");
    model.node("Mul", {"hv", "vector"}, {"vv"}, "Vector");
    // Factors that differ by powers of two rescale without rounding, like one factor.
    model.node("Mul", {"vv", "powers"}, {"y"}, "Powers");
    *model.graph().add_initializer() = float_tensor("vector", {8}, {1, 2, 3, 4, 5, 6, 7, 8});
    *model.graph().add_initializer() = float_tensor("powers", {8}, {3, 6, 1.5, 3, 3, 0.375, 12, 3});
    constant(model, "eps", {}, 1e-5f);
    constant(model, "gamma", {8});
    constant(model, "beta", {8});
    constant(model, "half", {});
    model.output("y");
    const auto network = model.load();
    const auto spec = specialize(*network, {{4, 8}, {4, 8}});
    EXPECT_THAT(with_form(*spec), ElementsAre("Residual", "Vector")) << reciprocal;
  }
}

TEST(Int8Form, ArithmeticOnShapesHasNone) {
  Model model;
  model.input("x", {2, 3});
  model.node("Shape", {"x"}, {"s"}, "Shape");
  model.node("Add", {"s", "s"}, {"t"}, "Twice");
  model.node("Expand", {"x", "s"}, {"y"}, "Expand");
  model.output("y");
  model.output("t");
  const auto network = model.load();
  const auto spec = specialize(*network, {{2, 3}});
  EXPECT_THAT(with_form(*spec), IsEmpty());
  EXPECT_THAT(int8_tensors(*spec), IsEmpty());
}

TEST(ElementReaders, FollowThePrecisionWhereThereAreScales) {
  Model model;
  model.input("x", {3, 4});
  model.input("r", {3, 5});
  model.node("MatMul", {"x", "w"}, {"xw"}, "MatMul");
  model.node("Add", {"xw", "b"}, {"z"}, "Bias");
  model.node("Add", {"z", "r"}, {"y"}, "Residual");
  constant(model, "w", {4, 5});
  constant(model, "b", {5});
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{3, 4}, {3, 5}});
  const LayerId product = network->find_layer("MatMul"), bias = network->find_layer("Bias"),
                residual = network->find_layer("Residual");
  Assignment assignment;
  assignment.precision.assign(network->layers.size(), Precision::kINT8);
  EXPECT_THAT(find_element_readers(*spec, assignment), ::testing::Each(Reading::kNumbers)) << "nothing has a scale";
  assignment.scale.assign(network->tensors.size(), 0.0f);
  assignment.scale[network->find_tensor("x")] = assignment.scale[network->find_tensor("z")] = 0.5f;
  Readings readings = find_element_readers(*spec, assignment);
  EXPECT_EQ(readings[product], Reading::kQuantized);
  EXPECT_EQ(readings[bias], Reading::kBias);
  EXPECT_EQ(readings[residual], Reading::kNumbers) << "r has no scale";
  assignment.precision[bias] = Precision::kFP16;
  EXPECT_EQ(find_element_readers(*spec, assignment)[bias], Reading::kNumbers) << "it stores another type";
  assignment.int8_output = DataType::kFloat16;
  EXPECT_EQ(find_element_readers(*spec, assignment)[bias], Reading::kBias);
  assignment.precision[product] = Precision::kFP16;
  EXPECT_THAT(find_element_readers(*spec, assignment), ::testing::Each(Reading::kNumbers));
}

}  // namespace
}  // namespace ulpscope::testing
