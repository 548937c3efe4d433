// Answers, journals and calibration caches with damage anywhere: read, or refused by one clear error.
#include "damage.h"

#include "calibration/calibration_cache.h"
#include "core/file.h"
#include "onnx/model_builder.h"
#include "precision/journal.h"
#include "ulpscope/answer.h"

namespace ulpscope::testing {
namespace {

using Json = nlohmann::ordered_json;

Trial example_trial() {
  Trial trial;
  trial.kind = TrialKind::kSearch;
  trial.raised = {{"Add", Precision::kFP32}, {"a b", Precision::kFP16}};
  trial.repairs = {"clamp mask:32752"};
  trial.judgement = {0.25, 0.0025, "y", 1, {{"y", 0.25, 0.0025, 1}}, ""};
  trial.samples_passed = 2;
  return trial;
}

AnswerFile example_answer() {
  AnswerFile file;
  file.program = "ulpscope 1.2.3";
  file.model = "model.onnx";
  file.precisions = {"fp16", "int8"};
  file.fusion = "full";
  file.build = {true, "l4", "weights", {{"own", "float16"}}, {"mask:1e4"}, {{"--trt-outputs", {"y"}}}};
  file.scales = {{"x", 0.1f}, {"y", 1e-30f}};
  Answer& answer = file.answer;
  answer.kept = {{"Add",
                  "Add",
                  {"Add"},
                  Precision::kFP32,
                  0.5,
                  {ReasonKind::kOverflow, "sum", 4, 16, 131008, 0.75, "overflow: 4 of 16 elements"}}};
  answer.kept[0].reason.exponents = {4, 0, 12};
  answer.repairs = {{"hidden", Equalize{0.25, {0, 3, 1}}, "scaled"}};
  answer.search = example_trial().judgement;
  answer.held_out = answer.search;
  answer.trials = {example_trial()};
  answer.sensitivities = {{"Add", "Add", 1.0 / 3.0, false}};
  return file;
}

TEST(Damage, AnswersAreReadOrRefused) {
  const std::string good = answer_to_json(example_answer());
  int worked = 0;
  for (std::uint32_t seed = 0; seed < rounds(6000); ++seed) {
    std::mt19937 random(seed);
    const std::string bad =
        random() % 4 == 0
            ? damaged(good, random)
            : damaged_json(Json::parse(good), random).dump(-1, ' ', false, Json::error_handler_t::replace);
    worked += works(
        [&] {
          const AnswerFile file = answer_from_json(bad, "[answer] 'x'");
          const std::string written = answer_to_json(file);
          EXPECT_EQ(answer_to_json(answer_from_json(written, "[answer] 'again'")), written) << "seed " << seed;
          answer_text(file);
        },
        "seed " + std::to_string(seed));
  }
  EXPECT_GT(worked, 300);
  EXPECT_LT(worked, static_cast<int>(rounds(5000)));
}

TEST(Damage, NumbersOfAnswersThatDoNotFitAreNamed) {
  const auto expect = [](const char* pointer, const Json& value, const char* part) {
    Json changed = Json::parse(answer_to_json(example_answer()));
    changed[Json::json_pointer(pointer)] = value;
    SCOPED_TRACE(pointer);
    expect_error(ErrorCode::kInvalidFile, {part}, [&] { answer_from_json(changed.dump(), "[answer] 'x'"); });
  };
  expect("/int8/scales/x", "nan", "int8.scales.x: expected a positive float32");
  expect("/int8/scales/x", -1, "int8.scales.x: expected a positive float32");
  expect("/int8/scales/x", 1e300, "int8.scales.x: expected a positive float32");
  expect("/search/worst_sample", std::int64_t{1} << 32, "search.worst_sample: expected the number of a sample");
  expect("/trials/0/samples_passed", -2, "trials[0].samples_passed: expected the number of a sample");
  expect("/trials/0/kind", "guess", "trials[0].kind: expected one of search, layer, shrink");
}

TEST(Damage, JournalsGoOnOrAreRefused) {
  const TemporaryFolder folder;
  const Fingerprint fingerprint{{"model", "m"}, {"metric", "rel-l2"}};
  Journal journal = Journal::create(folder / "good.jsonl", fingerprint);
  for (const TrialKind kind : {TrialKind::kSearch, TrialKind::kLayer, TrialKind::kHoldOut}) {
    Trial trial = example_trial();
    trial.kind = kind;
    journal.add(trial);
  }
  const std::string good = read_file(folder / "good.jsonl");
  for (std::uint32_t seed = 0; seed < rounds(1500); ++seed) {
    std::mt19937 random(seed);
    const auto path = folder.write("x.jsonl", damaged(good, random));
    works(
        [&] {
          Journal resumed = Journal::resume(path, fingerprint);
          const std::size_t count = resumed.trials().size();
          resumed.add(example_trial());
          EXPECT_EQ(Journal::resume(path, fingerprint).trials().size(), count + 1) << "seed " << seed;
        },
        "seed " + std::to_string(seed));
  }
}

TEST(Damage, CalibrationCachesAreReadOrRefused) {
  CalibrationCache cache;
  cache.scales = {{"x", 0.1f}, {"a: b", 1e-3f}, {"(Unnamed Layer* 48) [Constant]_output", 2.0f}};
  const std::string good = to_text(cache);
  for (std::uint32_t seed = 0; seed < rounds(4000); ++seed) {
    std::mt19937 random(seed);
    works(
        [&] {
          const CalibrationCache read = parse_calibration_cache(damaged(good, random), "x.cache");
          for (const auto& [name, scale] : read.scales)
            EXPECT_TRUE(scale > 0 && std::isfinite(127 * scale)) << "seed " << seed << " " << name;
          EXPECT_EQ(parse_calibration_cache(to_text(read), "again").scales, read.scales) << "seed " << seed;
        },
        "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace ulpscope::testing
