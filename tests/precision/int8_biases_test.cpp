// Biases of int8 products in searches: where the products leave int8, the sums behind them must not cost more than they
// save.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "calibration/calibration.h"
#include "engine/assign.h"
#include "engine/cost.h"
#include "engine/target.h"
#include "precision/search_helpers.h"
#include "precision/search_space.h"

namespace ulpscope::testing {
namespace {

constexpr std::int64_t kWidth = 16;
constexpr int kLayers = 5;

/// Products with biases, each followed by a Relu.
SearchData dense_layers() {
  Model model;
  model.input("x", {kWidth, kWidth});
  std::string from = "x";
  for (int i = 0; i < kLayers; ++i) {
    const std::string n = std::to_string(i);
    const auto seed = static_cast<std::uint32_t>(2 * i);
    *model.graph().add_initializer() =
        float_tensor("w" + n, {kWidth, kWidth}, floats(values_in({kWidth, kWidth}, -0.5, 0.5, seed + 1)));
    *model.graph().add_initializer() =
        float_tensor("b" + n, {kWidth}, floats(values_in({kWidth}, -0.5, 0.5, seed + 2)));
    model.node("MatMul", {from, "w" + n}, {"p" + n}, "Product" + n);
    model.node("Add", {"p" + n, "b" + n}, {"s" + n}, "Bias" + n);
    model.node("Relu", {"s" + n}, {"r" + n}, "Relu" + n);
    from = "r" + n;
  }
  model.output(from);
  return data_for(model.load(), "x", {kWidth, kWidth}, -1, 1);
}

SearchTask int8_and_fp16(const SearchData& data) {
  SearchTask task;
  task.ladder = {Precision::kFP16, Precision::kFP32};
  task.build.enabled.set(Precision::kINT8);
  task.build.enabled.set(Precision::kFP16);
  task.build.assume_lowest = true;
  task.build.constraints = ConstraintMode::kObey;
  task.build.fusion = Fusion::kFull;
  CalibrationOptions calibration;
  calibration.algorithm = CalibrationAlgorithm::kMinMax;
  std::size_t next = 0;
  task.build.scales = calibrate(data.network, calibration, [&]() -> std::optional<TensorMap> {
                        return next < data.samples.size() ? std::optional(data.samples[next++]) : std::nullopt;
                      }).scales;
  return task;
}

/// By the model of times alone, of a build that knows fp32 only.
double time_in_fp32(const SearchData& data, const SearchTask& task) {
  const auto spec = specialize(*data.network, {{kWidth, kWidth}});
  BuildOptions plain;
  plain.fusion = task.build.fusion;
  return TimeModel(*spec, task.build.fusion, find_target(task.build.target))(assign_precisions(*spec, plain));
}

/// Layers stay high for time alone where that saves 5 % without launches: here nothing but these is left out.
std::string target_without_launches() {
  const std::string path = ::testing::TempDir() + fmt::format("int8_biases_target_{}.json", ::getpid());
  std::ofstream(path) << R"({"format": "ulpscope-target", "version": 1, "name": "t", "bandwidth_gb_per_s": 1, )"
                      << R"("launch_us": 1e-6, "tflops": {"fp32": 0.01, "fp16": 0.08, "int8": 0.16}})";
  return path;
}

TEST(Int8Biases, AnswersAreHardlySlowerThanFp32) {
  const SearchData data = dense_layers();
  SearchTask task = int8_and_fp16(data);
  task.build.target = target_without_launches();
  const double fp32 = time_in_fp32(data, task);
  for (const double threshold : {1e-5, 3e-4, 1e-3, 3e-3}) {
    const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, threshold), task);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << threshold;
    EXPECT_LE(0.95 * answer.time_us, fp32) << threshold;
    EXPECT_NEAR(answer.time_high_us, fp32, 1e-9 * fp32) << threshold;
  }
}

TEST(Int8Biases, AreNamedWhereTheyWouldBeLowerAlone) {
  const SearchData data = dense_layers();
  SearchSpace space(data.network, int8_and_fp16(data), data.samples);
  ASSERT_TRUE(space.raise_biases());
  const auto named = [&](const Levels& levels) {
    int biases = 0;
    for (const auto& [name, precision] : space.names(levels).layers()) biases += name.starts_with("Bias") ? 1 : 0;
    return biases;
  };
  const Levels fp16 = space.raised_to(Precision::kFP16);
  EXPECT_GT(raised_count(fp16), 0u);
  EXPECT_EQ(named(space.lowest()), 0);
  EXPECT_EQ(named(fp16), 0);
  EXPECT_EQ(named(space.highest()), kLayers);
  // Named or not, sums have the precision of their products.
  for (const auto& [levels, precision] :
       {std::pair(fp16, Precision::kFP16), std::pair(space.highest(), Precision::kFP32)}) {
    const Assignment assignment = space.assignment(levels);
    for (int i = 0; i < kLayers; ++i)
      EXPECT_EQ(assignment.precision[data.network->find_layer("Bias" + std::to_string(i))], precision);
  }
}

}  // namespace
}  // namespace ulpscope::testing
