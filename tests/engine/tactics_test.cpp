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
  BuildOptions options;
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
