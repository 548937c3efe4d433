// Engines as files: the same bits after a round trip, and a clear refusal of everything else.
#include "runtime/plan_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "engine/build_helpers.h"
#include "engine/random_network.h"

namespace ulpscope::testing {
namespace {

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PlanFile, GivesTheSameBitsBack) {
  const TemporaryFolder folder;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    RandomNetwork random(seed);
    const auto engine = Engine::build(
        random.shared(), fp16_options(ConstraintMode::kNone, seed % 2 == 0 ? Fusion::kFull : Fusion::kNone, true));
    engine->save(folder / "m.engine");
    const auto loaded = Engine::load(folder / "m.engine", {.backend = engine->options().backend, .threads = 1});
    const auto expected = engine->run(random.inputs()), actual = loaded->run(random.inputs());
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      EXPECT_EQ(loaded->outputs()[o].name, engine->outputs()[o].name);
      ASSERT_EQ(actual[o].shape(), expected[o].shape());
      EXPECT_EQ(std::memcmp(actual[o].raw(), expected[o].raw(), actual[o].bytes()), 0) << "seed " << seed;
    }
    // Saved once more, the file is the same.
    loaded->save(folder / "again.engine");
    EXPECT_EQ(bytes_of(folder / "m.engine"), bytes_of(folder / "again.engine"));
  }
}

TEST(PlanFile, KeepsPrecisionsReasonsAndProfiles) {
  const TemporaryFolder folder;
  auto network = add_sub();
  layer_named(*network, "Add").precision = DataType::kFloat16;
  layer_named(*network, "Sub").precision = DataType::kFloat32;
  layer_named(*network, "Add").output_types = {DataType::kFloat32};
  const auto engine = Engine::build(network, fp16_options(ConstraintMode::kObey));
  engine->save(folder / "m.plan");
  const auto before = engine->report(), after = Engine::load(folder / "m.plan")->report();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].name, after[i].name);
    EXPECT_EQ(before[i].precision, after[i].precision);
    EXPECT_EQ(before[i].reason, after[i].reason);
    EXPECT_EQ(before[i].group, after[i].group);
    EXPECT_EQ(before[i].nodes, after[i].nodes);
  }
}

TEST(PlanFile, KeepsTheRuleOfAttention) {
  const TemporaryFolder folder;
  for (const AttentionRule rule : {AttentionRule::kNormalized, AttentionRule::kFlash}) {
    BuildOptions options = fp16_options(ConstraintMode::kNone, Fusion::kFull, true);
    options.attention = rule;
    Engine::build(add_sub(), options)->save(folder / "m.engine");
    EXPECT_EQ(Engine::load(folder / "m.engine")->options().attention, rule);
  }
}

TEST(PlanFile, RefusesWhatIsNoEngine) {
  const TemporaryFolder folder;
  const auto load = [&](const std::string& content) {
    return [&, content] { Engine::load(folder.write("m.engine", content)); };
  };
  expect_error(ErrorCode::kNotFound, {"none.engine"}, [&] { Engine::load(folder / "none.engine"); });
  expect_error(ErrorCode::kInvalidFile, {"m.engine", "ULPSPLAN"}, load(""));
  expect_error(ErrorCode::kInvalidFile, {"m.engine", "ULPSPLAN", "TensorRT"}, load("ftrt" + std::string(500, '\1')));
  expect_error(ErrorCode::kInvalidFile, {"m.engine", "ULPSPLAN"}, load(add_sub()->name));
}

TEST(PlanFile, RefusesOtherVersionsAndDamage) {
  const TemporaryFolder folder;
  Engine::build(add_sub(), {})->save(folder / "good.engine");
  const std::string good = bytes_of(folder / "good.engine");
  ASSERT_GT(good.size(), 200u);
  const auto load = [&](const std::string& content) {
    return [&, content] { Engine::load(folder.write("m.engine", content)); };
  };
  std::string other = good;
  other[8] = 77;
  expect_error(ErrorCode::kInvalidFile, {"version 3", "got 77"}, load(other));
  for (std::size_t keep : {std::size_t{9}, std::size_t{31}, std::size_t{40}, good.size() / 2, good.size() - 1})
    expect_error(ErrorCode::kInvalidFile, {"m.engine"}, load(good.substr(0, keep)));
  // Every single bit matters, except the reserved word and padding that the checksum covers, too.
  for (std::size_t byte = 0; byte < good.size(); byte += byte < 64 ? 1 : 37) {
    if (byte >= 12 && byte < 16) continue;
    std::string flipped = good;
    flipped[byte] = static_cast<char>(flipped[byte] ^ (1 << (byte % 8)));
    expect_error(ErrorCode::kInvalidFile, {"m.engine"}, load(flipped));
  }
  EXPECT_NO_THROW(Engine::load(folder.write("m.engine", good)));
}

}  // namespace
}  // namespace ulpscope::testing
