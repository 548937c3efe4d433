// Tactic replay: choices saved by one build and made again by another.
#include "engine/tactics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/log_capture.h"
#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(Tactics, AreChosenAgainWhenTheyAreLoaded) {
  BuildOptions options = fp16_options(ConstraintMode::kNone, Fusion::kFull, true);
  const std::string json = Engine::build(needs_constraints().load(), options)->tactic_replay_json();
  EXPECT_THAT(json, HasSubstr("\"polygraphy_class\": \"TacticReplayData\""));
  EXPECT_THAT(json, HasSubstr("\"MatMul_0 + Add + Sub\""));
  EXPECT_THAT(json, HasSubstr("DataType.HALF"));
  // Costs alone would keep fp32.
  options.assume_lowest = false;
  options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(json));
  const LogCapture log;
  auto rows = report_of(*Engine::build(needs_constraints().load(), options));
  for (const char* name : {"MatMul_0", "Add", "Sub", "MatMul_1"}) {
    EXPECT_EQ(rows[name].precision, "fp16") << name;
    EXPECT_EQ(rows[name].reason, "replayed tactic") << name;
  }
  EXPECT_FALSE(log.has("no entry"));
}

TEST(Tactics, OfAnotherNetworkAreReported) {
  BuildOptions options = fp16_options();
  options.tactic_replay = std::make_shared<const TacticReplay>(
      tactics_from_json(Engine::build(needs_constraints().load(), fp16_options())->tactic_replay_json()));
  const LogCapture log;
  Model model;
  model.input("x", {2});
  model.node("Relu", {"x"}, {"y"}, "Other");
  model.output("y");
  Engine::build(model.load(), options);
  EXPECT_TRUE(log.has("[W] The tactic replay has no entry for layer 'Other'"));
}

TEST(Tactics, NeedTheirPrecisionEnabled) {
  BuildOptions options = tested_options();
  options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(
      Engine::build(add_sub(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true))->tactic_replay_json()));
  expect_error(ErrorCode::kBuild, {"'Add'", "fp16", "--fp16"}, [&] { Engine::build(add_sub(), options); });
}

TEST(Tactics, GiveWayToConstraints) {
  BuildOptions options = fp16_options(ConstraintMode::kObey);
  options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(
      Engine::build(add_sub(), fp16_options(ConstraintMode::kNone, Fusion::kFull, true))->tactic_replay_json()));
  auto network = add_sub();
  layer_named(*network, "Sub").precision = DataType::kFloat32;
  auto rows = report_of(*Engine::build(network, options));
  EXPECT_EQ(rows["Add"].precision, "fp16");
  EXPECT_EQ(rows["Sub"].precision, "fp32");
}

TEST(Tactics, RefuseFilesOfOthersAndBadJson) {
  expect_error(ErrorCode::kInvalidFile, {"[tactics]"}, [] { tactics_from_json("{"); });
  expect_error(ErrorCode::kInvalidFile, {"'replay'"}, [] { tactics_from_json("[]"); });
  expect_error(ErrorCode::kInvalidFile, {"'replay'"}, [] { tactics_from_json("{\"replay\": 1}"); });
  expect_error(ErrorCode::kInvalidFile, {"'a'", "'implementation'"},
               [] { tactics_from_json("{\"replay\": {\"a\": {}}}"); });
  expect_error(ErrorCode::kInvalidFile, {"[tactics]"},
               [] { tactics_from_json("{\"replay\": {\"a\": {\"implementation\": \"x\"}}}"); });
  expect_error(ErrorCode::kBuild, {"'a'", "2147483800", "TensorRT"},
               [] { tactics_from_json("{\"replay\": {\"a\": {\"implementation\": 2147483800}}}"); });
  expect_error(ErrorCode::kBuild, {"'a'", "-5"},
               [] { tactics_from_json("{\"replay\": {\"a\": {\"implementation\": -5}}}"); });
}

TEST(Tactics, OfAnotherBackendAreRefused) {
  BuildOptions options = fp16_options();
  options.backend = "cpu";
  const std::string json = Engine::build(add_sub(), options)->tactic_replay_json();
  options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(json));
  EXPECT_EQ(options.tactic_replay->backend, "cpu");
  EXPECT_NO_THROW(Engine::build(add_sub(), options));
  options.backend = "plain";
  expect_error(ErrorCode::kBuild, {"[tactics]", "the backend 'cpu'", "for 'plain'", "--backend cpu"},
               [&] { Engine::build(add_sub(), options); });
  // Before a device is asked for.
  TacticReplay of_gpu = *options.tactic_replay;
  of_gpu.backend = "cuda";
  options.tactic_replay = std::make_shared<const TacticReplay>(of_gpu);
  expect_error(ErrorCode::kBuild, {"'cuda'", "'plain'"}, [&] { Engine::build(add_sub(), options); });
  options.backend = "cuda";
  options.tactic_replay = std::make_shared<const TacticReplay>(tactics_from_json(json));
  expect_error(ErrorCode::kBuild, {"'cpu'", "'cuda'"}, [&] { Engine::build(add_sub(), options); });
}

TEST(Tactics, WithoutABackendAreThoseOfEveryOne) {
  BuildOptions options = fp16_options();
  TacticReplay replay = tactics_from_json(Engine::build(add_sub(), options)->tactic_replay_json());
  replay.backend.clear();
  options.tactic_replay = std::make_shared<const TacticReplay>(replay);
  for (const char* backend : {"cpu", "plain"}) {
    options.backend = backend;
    EXPECT_NO_THROW(Engine::build(add_sub(), options)) << backend;
  }
}

TEST(Tactics, StepsAreTexts) {
  const auto with_steps = [](const std::string& steps) {
    return R"({"replay": {"a + b": {"implementation": 2147483650, "steps": )" + steps + R"(}}, "backend": "cuda"})";
  };
  const TacticReplay read =
      tactics_from_json(with_steps(R"([{"computes": "x", "algorithm": "1"}, {"computes": "y", "algorithm": "2"}])"));
  const auto& steps = read.groups.at("a + b").steps;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].computes + steps[0].algorithm + steps[1].computes + steps[1].algorithm, "x1y2");
  EXPECT_EQ(read.backend, "cuda");
  EXPECT_TRUE(tactics_from_json(with_steps("[]")).groups.at("a + b").steps.empty());
  for (const char* bad :
       {"3", "\"x\"", "[3]", "[{}]", R"([{"computes": "x"}])", R"([{"computes": 1, "algorithm": "1"}])",
        R"([{"computes": "x", "algorithm": ["1"]}])", R"({"computes": "x", "algorithm": "1"})"})
    expect_error(ErrorCode::kInvalidFile, {"[tactics]", "'a + b'"}, [&] { tactics_from_json(with_steps(bad)); });
  expect_error(ErrorCode::kInvalidFile, {"'backend'", "7"},
               [] { tactics_from_json(R"({"replay": {}, "backend": 7})"); });
  expect_error(ErrorCode::kInvalidFile, {"'device'"}, [] { tactics_from_json(R"({"replay": {}, "device": null})"); });
}

TEST(Tactics, StepsAreWrittenWithTheirGroup) {
  const auto network = needs_constraints().load();
  std::vector<Shape> shapes;
  for (TensorId id : network->inputs) shapes.push_back(*network->tensor(id).shape);
  const auto spec = specialize(*network, shapes);
  const BuildOptions options = fp16_options(ConstraintMode::kNone, Fusion::kFull, true);
  const Assignment assignment = assign_precisions(*spec, options);
  const PlanTactics tactics{"GPU",
                            {{network->find_layer("Sub"), "product", "00ff"},
                             {network->find_layer("MatMul_1"), "product", "ff00"},
                             {kNone, "copy", "x"}}};
  const std::string json = tactics_to_json(*spec, assignment, fuse(*spec, assignment, options.fusion), "cuda", tactics);
  const TacticReplay read = tactics_from_json(json);
  EXPECT_EQ(read.device, "GPU");
  ASSERT_EQ(read.groups.size(), 2u);
  for (const auto& [group, algorithm] : {std::pair("MatMul_0 + Add + Sub", "00ff"), std::pair("MatMul_1", "ff00")}) {
    ASSERT_EQ(read.groups.at(group).steps.size(), 1u);
    EXPECT_EQ(read.groups.at(group).steps[0].algorithm, algorithm);
  }
}

TEST(Tactics, NameEveryLayerOfAGroup) {
  const TacticReplay replay = tactics_from_json(
      "{\"replay\": {\"a + b\": {\"implementation\": 2147483650}, \"c\": {\"implementation\": 2147483648}}}");
  EXPECT_EQ(replay.precision.at("a"), Precision::kFP16);
  EXPECT_EQ(replay.precision.at("b"), Precision::kFP16);
  EXPECT_EQ(replay.precision.at("c"), Precision::kFP32);
  EXPECT_TRUE(replay.groups.contains("a + b"));
}

}  // namespace
}  // namespace ulpscope::testing
