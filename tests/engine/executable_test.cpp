// What is kept for input shapes, and what gives way.
#include "runtime/executable.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "core/parallel.h"
#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

TEST(RecentlyUsed, TheLongestUnusedGivesWay) {
  RecentlyUsed<std::shared_ptr<int>> kept(2);
  const std::vector<Shape> small{{1}}, middle{{2}}, large{{3}};
  EXPECT_EQ(kept.put(large, std::make_shared<int>(3)), nullptr);
  EXPECT_EQ(kept.put(small, std::make_shared<int>(1)), nullptr);
  EXPECT_EQ(*kept.find(large), 3);  // Now the other one is the longest unused.
  const auto dropped = kept.put(middle, std::make_shared<int>(2));
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(*dropped, 1);
  EXPECT_EQ(kept.find(small), nullptr);
  EXPECT_EQ(*kept.find(large), 3);
  EXPECT_EQ(kept.put(large, std::make_shared<int>(4)), nullptr);
  EXPECT_EQ(*kept.find(large), 3) << "what is there stays";
}

/// y = x @ transposed table + a mask of x's length; the table is read as it is by a second product.
std::shared_ptr<Network> tied_embedding() {
  Model model;
  model.input("x", {-1, 3});
  model.node("Transpose", {"table"}, {"turned"}, "Turn");
  model.node("MatMul", {"x", "turned"}, {"scores"}, "Scores");
  model.node("Shape", {"scores"}, {"shape"}, "Shape");
  model.node("Expand", {"c", "shape"}, {"mask"}, "Mask");
  model.node("Add", {"scores", "mask"}, {"y"}, "Add");
  *model.graph().add_initializer() = float_tensor("table", {2, 3}, {1, 2, 3, 4, 5, 6});
  *model.graph().add_initializer() = float_tensor("c", {1}, {10});
  model.output("y");
  return model.load();
}

TEST(Executable, NewShapesShareWhatDoesNotDependOnThem) {
  const auto network = tied_embedding();
  Executable executable(*network, Assignment{}, BuildOptions{});
  const TensorId turned = network->find_tensor("turned"), mask = network->find_tensor("mask"),
                 table = network->find_tensor("table");
  const auto first = executable.specialization({{1, 3}});
  ASSERT_TRUE(first->is_constant(turned));
  for (std::int64_t n : {2, 5, 100}) {
    const auto other = executable.specialization({{n, 3}});
    EXPECT_EQ(other->value(turned).raw(), first->value(turned).raw());
    EXPECT_EQ(other->value(table).raw(), first->value(table).raw());
    EXPECT_EQ(other->value(mask).shape(), (Shape{n, 2}));
  }
}

TEST(Executable, LetsGoOfShapesAndTheirConstants) {
  const auto network = tied_embedding();
  BuildOptions options;
  options.enabled.set(Precision::kFP16);
  options.assume_lowest = true;
  std::vector<std::weak_ptr<const Specialization>> made;
  Executable executable(*network, assign_precisions(*specialize(*network, {{1, 3}}), options), options);
  for (std::int64_t n = 1; n <= 100; ++n) {
    Tensor x(DataType::kFloat32, {n, 3});
    std::fill_n(x.data<float>(), x.size(), 1.0f);
    const auto outputs = executable.run(std::vector<Tensor>{x});
    EXPECT_EQ(floats(outputs[0])[2 * n - 1], 25.0f);
    made.push_back(executable.specialization({{n, 3}}));
  }
  EXPECT_LE(std::ranges::count_if(made, [](const auto& spec) { return !spec.expired(); }), 32);
}

TEST(Specialization, LargeConstantsOfShapesAreNotKept) {
  Model model;
  model.input("x", {-1, 3});
  model.node("Shape", {"x"}, {"shape"}, "Shape");
  model.node("Expand", {"c", "shape"}, {"wide"}, "Wide");
  model.node("Add", {"x", "wide"}, {"y"}, "Add");
  *model.graph().add_initializer() = float_tensor("c", {1}, {10});
  model.output("y");
  const auto network = model.load();
  const TensorId wide = network->find_tensor("wide");
  EXPECT_TRUE(specialize(*network, {{1000, 3}})->is_constant(wide));
  EXPECT_FALSE(specialize(*network, {{30'000'000, 3}})->is_constant(wide));
}

TEST(Executable, APlanIsForTheThreadsThatRunIt) {
  const auto network = tied_embedding();
  BuildOptions options;
  options.backend = "cpu";
  Executable executable(*network, assign_precisions(*specialize(*network, {{2, 3}}), options), options);
  const auto plan_with = [&](int threads) {
    const ScopedThreads scope(threads);
    return executable.plan_for({{2, 3}});
  };
  const auto one = plan_with(1), two = plan_with(2);
  EXPECT_NE(one, two);
  EXPECT_EQ(one, plan_with(1));
  EXPECT_EQ(two, plan_with(2));
}

/// Three outputs: a view of what a layer computes, and two views of what another computes.
TEST(Executable, ResultsThatAreViewsAreTheCallers) {
  Model model;
  model.input("x", {2, 3});
  model.node("Neg", {"x"}, {"n"}, "Neg");
  model.node("Reshape", {"n", "flat"}, {"alone"}, "Alone");
  model.node("Abs", {"x"}, {"a"}, "Abs");
  model.node("Reshape", {"a", "flat"}, {"first"}, "First");
  model.node("Identity", {"a"}, {"second"}, "Second");
  *model.graph().add_initializer() = int64_tensor("flat", {1}, {-1});
  for (const char* output : {"alone", "first", "second"}) model.output(output);
  const auto network = model.load();
  for (const Fusion fusion : {Fusion::kNone, Fusion::kFull}) {
    BuildOptions options = tested_options();
    options.fusion = fusion;
    Executable executable(*network, assign_precisions(*specialize(*network, {{2, 3}}), options), options);
    const std::vector<Tensor> x{Tensor::of<float>({2, 3}, {1, -2, 3, -4, 5, -6})},
        other{Tensor::of<float>({2, 3}, {0, 0, 0, 0, 0, 0})};
    std::vector<Tensor> results = executable.run(x);
    executable.run(other);
    EXPECT_EQ(floats(results[0]), (std::vector<float>{-1, 2, -3, 4, -5, 6}));
    results[1].data<float>()[0] = 99;
    EXPECT_EQ(floats(results[2]), (std::vector<float>{1, 2, 3, 4, 5, 6})) << "two outputs share no memory";
  }
}

/// Casts of x, of whose results one is read by another layer as well.
TEST(Executable, NarrowRunsStoreCastsInTheirOwnType) {
  Model model;
  model.input("x", {41});
  const auto cast = [&](const char* output, int type) {
    add_attribute(model.node("Cast", {"x"}, {output}), "to", onnx::AttributeProto::INT).set_i(type);
    model.output(output);
  };
  cast("half", onnx::TensorProto::FLOAT16);
  cast("brain", onnx::TensorProto::BFLOAT16);
  model.node("Abs", {"x"}, {"a"});
  add_attribute(model.node("Cast", {"a"}, {"both"}), "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT16);
  model.node("Neg", {"both"}, {"n"});
  model.output("both");
  model.output("n");
  const auto network = model.load();
  Tensor x(DataType::kFloat32, {41});
  for (int i = 0; i < 41; ++i)
    x.data<float>()[i] = std::ldexp(1.0f + static_cast<float>(i) / 39, 3 * i - 60) * (i - 20);
  for (int i = 0; i < 3; ++i) x.data<float>()[i] = std::array{NAN, -NAN, -INFINITY}[i];
  x.data<float>()[7] = 65520;
  const BuildOptions options = tested_options();
  Executable executable(*network, assign_precisions(*specialize(*network, {{41}}), options), options);
  for (const int threads : {1, 2}) {
    const ScopedThreads scope(threads);
    const std::vector<Tensor> wide = executable.run({&x, 1}), narrow = executable.run_narrow({&x, 1});
    for (std::size_t o = 0; o < 4; ++o) {
      const DataType type = o == 1 ? DataType::kBFloat16 : DataType::kFloat16;
      EXPECT_EQ(wide[o].type(), DataType::kFloat32);
      if (find_backend(options.backend).name() == "cpu" && o < 2) EXPECT_EQ(narrow[o].type(), type);
      const Tensor expected = wide[o].cast(type), actual = narrow[o].cast(type);
      EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), expected.bytes()), 0) << o;
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
