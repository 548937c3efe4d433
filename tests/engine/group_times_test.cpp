// Times of groups that a target brings: what finds them again, and what they decide. No test looks at a clock.
#include "engine/group_times.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/build_helpers.h"
#include "engine/choose.h"
#include "engine/cost.h"
#include "engine/random_network.h"
#include "runtime/measure_target.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;

/// Product, bias and Relu, then Softmax; layers and tensors are named with `prefix`.
std::shared_ptr<Network> network_of(const std::string& prefix, std::int64_t width, const std::string& last = "Softmax",
                                    int axis = -1, bool second_output = false) {
  const auto name = [&](const char* text) { return prefix + text; };
  Model model;
  model.input(name("x"), {4, width});
  model.node("MatMul", {name("x"), name("w")}, {name("p")}, name("Product"));
  model.node("Add", {name("p"), name("b")}, {name("s")}, name("Bias"));
  model.node("Relu", {name("s")}, {name("r")}, name("Relu"));
  auto& node = model.node(last, {name("r")}, {name("y")}, name("Last"));
  if (last == "Softmax") add_attribute(node, "axis", onnx::AttributeProto::INT).set_i(axis);
  const auto size = static_cast<std::size_t>(width);
  *model.graph().add_initializer() = float_tensor(name("w"), {width, width}, std::vector<float>(size * size, 0.5f));
  *model.graph().add_initializer() = float_tensor(name("b"), {width}, std::vector<float>(size, 0.25f));
  model.output(name("y"));
  if (second_output) model.output(name("s"));
  return model.load();
}

struct Built {
  std::shared_ptr<const Specialization> spec;
  Assignment assignment;
  Grouping grouping;
};

Built build(const Network& network, const BuildOptions& options) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) shapes.push_back(*network.tensor(id).shape);
  Built built{specialize(network, shapes), {}, {}};
  built.assignment = assign_precisions(*built.spec, options);
  built.grouping = fuse(*built.spec, built.assignment, options.fusion);
  return built;
}

BuildOptions lowest(bool fp16) {
  BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kFull, true);
  options.enabled.set(Precision::kFP16, fp16);
  return options;
}

std::vector<std::string> texts(const Network& network, const BuildOptions& options = lowest(true)) {
  const Built built = build(network, options);
  std::vector<std::string> result;
  for (const Group& group : built.grouping.groups) result.push_back(kernel_text(*built.spec, group));
  return result;
}

TEST(KernelText, SaysWhatIsComputedWithoutNames) {
  const auto of = texts(*network_of("", 8));
  ASSERT_EQ(of.size(), 2);
  EXPECT_EQ(of[0], "MatMul($0[4x8], w[8x8]) %0[4x8]; Add(%0, w[8]) %1[4x8]; Relu(%1) %2[4x8]");
  EXPECT_EQ(of[1], "Softmax{axis=-1}($0[4x8]) %0[4x8]");
  EXPECT_EQ(texts(*network_of("other_", 8)), of);
  EXPECT_EQ(texts(*network_of("", 8), lowest(false)), of);
}

TEST(KernelText, TellsShapesAttributesAndStoredValuesApart) {
  std::set<std::vector<std::string>> different{
      texts(*network_of("", 8)), texts(*network_of("", 16)), texts(*network_of("", 8, "Softmax", 0)),
      texts(*network_of("", 8, "Tanh")), texts(*network_of("", 8, "Softmax", -1, true))};
  EXPECT_EQ(different.size(), 5);
}

Target target_with(TimedKernels timed) {
  Target target;
  target.name = "by hand";
  target.tflops.fill(1);
  target.bandwidth_gb_per_s = 200;
  target.launch_us = 0.5;
  target.timed = std::make_shared<const TimedKernels>(std::move(timed));
  return target;
}

TEST(GroupTimes, AssignmentsTakeWhatTheirGroupsTakeAndTheirCasts) {
  const auto network = network_of("", 8);
  const auto of = texts(*network);
  const Target target = target_with({{of[0], {{"fp32", 10}, {"fp16", 3}}}, {of[1], {{"fp32", 5}, {"fp16", 20}}}});
  const double cast = 0.5 + 4 * 8 * 6 / 200e3;
  const Built high = build(*network, lowest(false)), low = build(*network, lowest(true));
  const TimeModel high_time(*high.spec, Fusion::kFull, target), low_time(*low.spec, Fusion::kFull, target);
  EXPECT_DOUBLE_EQ(high_time(high.assignment), 15);
  EXPECT_DOUBLE_EQ(low_time(low.assignment), 23 + 2 * cast);
  // The product reads the input, whoever has the network the output.
  Target shares = target;
  shares.product_cast_share = 0.75;
  shares.cast_share = 0.125;
  const TimeModel shared(*low.spec, Fusion::kFull, shares);
  EXPECT_DOUBLE_EQ(shared(low.assignment), 23 + 0.875 * cast);
  // 8 x 8 weights of two bytes.
  shares.weight_us_per_mb = 1e6;
  shares.cached_mb = 28e-6;
  const TimeModel cached(*low.spec, Fusion::kFull, shares);
  EXPECT_DOUBLE_EQ(cached.weights_mb(low.assignment), 128e-6);
  EXPECT_DOUBLE_EQ(cached.weights_mb(high.assignment), 256e-6);
  EXPECT_NEAR(cached(low.assignment), 23 + 0.875 * cast + 100, 1e-9);
  EXPECT_DOUBLE_EQ(shared.casts(low.assignment).product_passes_us, cast);
  EXPECT_DOUBLE_EQ(shared.casts(low.assignment).other_passes_us, cast);
  EXPECT_EQ(low_time.coverage(low.assignment).measured, 2);
  EXPECT_EQ(low_time.coverage(low.assignment).groups, 2);
  // What the file does not say is the roofline's.
  const Target part = target_with({{of[0], {{"fp16", 3}}}});
  const TimeModel part_time(*low.spec, Fusion::kFull, part), plain(*low.spec, Fusion::kFull, target_with({}));
  EXPECT_EQ(part_time.coverage(low.assignment).measured, 1);
  EXPECT_EQ(part_time.coverage(high.assignment).measured, 0);
  EXPECT_DOUBLE_EQ(part_time(high.assignment), plain(high.assignment));
  EXPECT_DOUBLE_EQ(group_times_us(*low.spec, low.grouping, low.assignment, part)[0], 3);
  EXPECT_GT(group_times_us(*low.spec, low.grouping, low.assignment, part)[1], 0.5);
}

TEST(GroupTimes, GroupsWithoutATimeTakeTheLeastOfThoseWithTheirProduct) {
  const auto network = network_of("", 8);
  const Built low = build(*network, lowest(true));
  const std::string product = "MatMul($0[4x8], w[8x8]) %0[4x8]";
  const Target target = target_with({{product, {{"fp16", 4}}},
                                     {product + "*; Relu(%0) %1[4x8]", {{"fp16", 3}, {"fp32", 7}}},
                                     {"MatMul($0[4x8], w[8x88]) %0[4x88]", {{"fp16", 1}}},
                                     {"Softmax{axis=-1}($0[4x8]) %0[4x8]; Relu(%0) %1[4x8]", {{"fp16", 2}}}});
  EXPECT_DOUBLE_EQ(group_times_us(*low.spec, low.grouping, low.assignment, target)[0], 3);
  const double softmax = group_times_us(*low.spec, low.grouping, low.assignment, target_with({}))[1];
  EXPECT_DOUBLE_EQ(group_times_us(*low.spec, low.grouping, low.assignment, target)[1], softmax);
  const TimeModel model(*low.spec, Fusion::kFull, target);
  EXPECT_EQ(model.coverage(low.assignment).measured, 0);
}

TEST(GroupTimes, ProductsOfOneOperandTakeWhatTheyTakeTogether) {
  Model model;
  model.input("x", {4, 8});
  for (const char* name : {"a", "b", "c"}) {
    *model.graph().add_initializer() = float_tensor(std::string("w") + name, {8, 8}, std::vector<float>(64, 0.5f));
    model.node("MatMul", {"x", std::string("w") + name}, {name}, name);
    model.output(name);
  }
  const auto network = model.load();
  const std::string product = "MatMul($0[4x8], w[8x8]) %0[4x8]";
  const Target target = target_with({{product, {{"fp16", 4}, {"fp16 x3", 2}, {"fp32", 9}, {"fp32 x2", 8}}}});
  const Built low = build(*network, lowest(true));
  layer_named(*network, "c").precision = DataType::kFloat32;
  const Built mixed = build(*network, lowest(true));
  // Two of them in fp16, whose time together nobody measured.
  EXPECT_EQ(group_times_us(*mixed.spec, mixed.grouping, mixed.assignment, target), (std::vector<double>{4, 4, 9}));
  EXPECT_EQ(group_times_us(*low.spec, low.grouping, low.assignment, target), (std::vector<double>{2, 2, 2}));
}

TEST(GroupTimes, ProductsAreOneWithTheirNeighborsAlone) {
  Model model;
  model.input("x", {4, 8});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const std::string own = name;
    *model.graph().add_initializer() = float_tensor("w" + own, {8, 8}, std::vector<float>(64, 0.5f));
    *model.graph().add_initializer() = float_tensor("bias" + own, {8}, std::vector<float>(8, 0.5f));
    model.node("MatMul", {"x", "w" + own}, {own + "0"}, own);
    model.node("Add", {own + "0", "bias" + own}, {own + "1"}, own + "_bias");
    if (own == "d") model.node("Relu", {"d1"}, {"d2"}, "d_relu");
    model.output(own == "d" ? "d2" : own + "1");
  }
  const auto network = model.load();
  const auto counts = [&](std::initializer_list<const char*> kept) {
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      const std::string own = name;
      const bool keeps = std::ranges::find(kept, own) != kept.end();
      for (const std::string& layer : {own, own + "_bias"})
        layer_named(*network, layer).precision = keeps ? std::optional(DataType::kFloat32) : std::nullopt;
    }
    const Built built = build(*network, lowest(true));
    return count_together(*built.spec, built.grouping, &built.assignment);
  };
  // Whoever lies between two in another precision, or does more than to add a bias, parts them.
  EXPECT_EQ(counts({}), (std::vector<int>{3, 3, 3, 1, 1}));
  EXPECT_EQ(counts({"a"}), (std::vector<int>{1, 2, 2, 1, 1}));
  EXPECT_EQ(counts({"b"}), (std::vector<int>{1, 1, 1, 1, 1}));
  EXPECT_EQ(counts({"b", "c"}), (std::vector<int>{1, 2, 2, 1, 1}));
}

TEST(GroupTimes, CostsOfLayersAddUpToTheirGroup) {
  const auto network = network_of("", 8);
  const auto of = texts(*network);
  const TimedKernels times{{of[0], {{"fp32", 10}, {"fp16", 3}, {"tf32", 4}}}, {of[1], {{"fp32", 5}, {"fp16", 20}}}};
  const Built low = build(*network, lowest(true));
  IdMap<LayerId, std::vector<Precision>> choices(network->layers.size());
  for (const LayerId id : network->layers.ids())
    choices[id] = network->layer(id).op->kind == OpKind::kContraction
                      ? std::vector{Precision::kFP16, Precision::kTF32, Precision::kFP32}
                      : std::vector{Precision::kFP16, Precision::kFP32};
  const CostProblem problem = make_cost_problem(*low.spec, low.grouping, target_with(times), choices);
  ASSERT_EQ(problem.nodes.size(), 4);
  const auto sum = [&](std::size_t first, std::size_t end, Precision p) {
    double total = 0;
    for (std::size_t n = first; n < end; ++n) {
      const auto& node = problem.nodes[n];
      const auto found = std::ranges::find(node.choices, p);
      total += found != node.choices.end() ? node.cost[found - node.choices.begin()] : node.cost.back();
      EXPECT_GE(*std::ranges::min_element(node.cost), 0);
    }
    return total;
  };
  EXPECT_NEAR(sum(0, 3, Precision::kFP16), 3, 1e-9);
  EXPECT_NEAR(sum(0, 3, Precision::kFP32), 10, 1e-9);
  EXPECT_NEAR(sum(3, 4, Precision::kFP16), 20, 1e-9);
  EXPECT_NEAR(sum(3, 4, Precision::kFP32), 5, 1e-9);
  // Of the group, the product alone has tf32: what the others take in fp32 is all, or the rest is the product's.
  const double followers = sum(1, 3, Precision::kFP32);
  EXPECT_NEAR(sum(0, 3, Precision::kTF32), std::max(4.0, followers), 1e-9);
}

TEST(GroupTimes, EnginesTakeWhatIsFastByTheFile) {
  const auto network = network_of("", 8);
  const auto of = texts(*network);
  const std::string path = ::testing::TempDir() + fmt::format("group_times_{}.json", ::getpid());
  for (const bool product_is_faster : {false, true}) {
    Target target = target_with({{of[0], {{"fp32", 20}, {"fp16", product_is_faster ? 3 : 40}}},
                                 {of[1], {{"fp32", 20}, {"fp16", product_is_faster ? 40 : 3}}}});
    std::ofstream(path) << target_to_json(target);
    BuildOptions options = lowest(true);
    options.assume_lowest = false;
    options.target = path;
    const auto report = report_of(*Engine::build(network, options));
    EXPECT_EQ(report.at("Product").precision, product_is_faster ? "fp16" : "fp32");
    EXPECT_EQ(report.at("Last").precision, product_is_faster ? "fp32" : "fp16");
    EXPECT_DOUBLE_EQ(report.at("Product").microseconds, product_is_faster ? 3 : 20);
    EXPECT_DOUBLE_EQ(report.at("Last").microseconds, product_is_faster ? 20 : 3);
  }
}

TEST(TargetFile, SaysEverythingThatTimesDependOn) {
  Target target = target_with({{"Relu($0[4]) %0[4]", {{"fp32", 1.25}, {"float16", 0}}}});
  target.origin = Target::Origin{"ulpscope", "2026-01-31", "cuda", "a device", 3, {{"a library", "1.2"}}};
  const Target read = target_from_json(target_to_json(target), "here");
  EXPECT_EQ(read.name, target.name);
  EXPECT_EQ(read.figures(), target.figures());
  EXPECT_EQ(*read.timed, *target.timed);
  EXPECT_EQ(read.origin->device, "a device");
  EXPECT_EQ(read.origin->libraries, target.origin->libraries);
  std::set<std::string> figures{target.figures()};
  for (double* figure : {&target.tflops[2], &target.bandwidth_gb_per_s, &target.launch_us, &target.cast_share,
                         &target.product_cast_share, &target.weight_us_per_mb, &target.cached_mb}) {
    *figure = 2 * *figure + 0.5;
    figures.insert(target.figures());
  }
  for (const double us : {1.5, 1.75}) figures.insert(target_with({{"Relu($0[4]) %0[4]", {{"fp32", us}}}}).figures());
  EXPECT_EQ(figures.size(), 10);
  target.name = "another";
  target.origin.reset();
  EXPECT_TRUE(figures.contains(target.figures())) << "names change no time";
}

TEST(MeasuredGroups, AreFoundAgain) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    RandomNetwork random(seed, 14);
    const Network& network = random.network();
    const std::vector<Shape> shapes = random.input_shapes();
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      inputs.emplace_back(DataType::kFloat32, shapes[i]);
      std::fill_n(inputs.back().data<float>(), inputs.back().size(), 0.5f);
    }
    BuildOptions options = lowest(true);
    options.enabled.set(Precision::kBF16);
    Target target = target_with({});
    const GroupCount count = measure_groups(network, options, inputs, target, [](const std::string&) {});
    EXPECT_EQ(count.kernels, static_cast<int>(target.timed->size()));
    for (const auto& [kernel, times] : *target.timed)
      for (const auto& [precision, us] : times) EXPECT_TRUE(us >= 0 && std::isfinite(us)) << kernel << precision;
    const auto spec = specialize(network, shapes);
    const TimeModel time(*spec, options.fusion, target);
    for (const bool bf16 : {false, true}) {
      BuildOptions uniform = lowest(!bf16);
      uniform.enabled.set(Precision::kBF16, bf16);
      const Assignment assignment = assign_precisions(*spec, uniform);
      const TimeModel::Coverage coverage = time.coverage(assignment);
      EXPECT_EQ(coverage.measured, coverage.groups) << "seed " << seed;
      double sum = 0;
      for (const Group& group : fuse(*spec, assignment, options.fusion).groups)
        sum += target.timed->at(kernel_text(*spec, group)).at(std::string(group_precision(*spec, group, assignment)));
      EXPECT_NEAR(time(assignment), sum + time.casts(assignment).total_us, 1e-9 * (1 + sum)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
