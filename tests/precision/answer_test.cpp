// The answer as JSON, and as text.
#include "ulpscope/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "graph/layer_form.h"
#include "precision/fingerprint.h"
#include "precision/shell_word.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

AnswerFile example() {
  AnswerFile file;
  file.program = "ulpscope 1.2.3";
  file.model = "my model.onnx";
  file.model_hash = "xxh3:0123456789abcdef";
  file.precisions = {"fp16", "int8"};
  file.fusion = "none";
  file.build = {
      true, "l4", "weights", {{"Add", "int8"}, {"own", "float16"}}, {"mask:1e4"}, {{"--trt-outputs", {"y", "z"}}}};
  file.criterion_options = {"--metric", "rel-l2", "--threshold", "0.01"};
  file.inputs = {"a.json", "b.json"};
  file.golden = "golden.json";
  file.calibration_cache = "m.cache";
  file.scales = {{"x", 0.1f}, {"y", 1e-30f}};
  Answer& a = file.answer;
  a.verdict = Answer::Verdict::kFailsHeldOut;
  a.message = "Passes on the samples of the search, but not on 1 of 2 held-out samples.";
  a.kept = {
      {"Add",
       "Add",
       {"Add"},
       Precision::kFP32,
       std::numeric_limits<double>::infinity(),
       {ReasonKind::kOverflow, "sum", 4, 16, 131008, 0.75, "overflow: 4 of 16 elements of 'sum' lie beyond 65504."}},
      {"a b", "MatMul", {"n1", "n2"}, Precision::kFP16, 0.1, {ReasonKind::kResolution, "t", 1, 2, 3, 0.25, "coarse"}}};
  a.kept[0].reason.low = Precision::kFP16;
  a.kept[0].reason.first_exponent = -3;
  a.kept[0].reason.exponents = {4, 0, 12};
  a.following = {"Reshape_1", "Transpose_2"};
  a.repairs = {{"mask", Clamp{32752}, "clamped"}, {"hidden", Equalize{0.25, {0, 3, 1}}, "scaled"}};
  a.repairs.push_back(
      {"square",
       ScaleRegion{-18, {{ScaleEdit::Kind::kConstant, "Mul", 1, -9}, {ScaleEdit::Kind::kInsertion, "Pow", 0, 4}}},
       "scaled"});
  a.candidates = 12;
  a.criterion = "rel-l2 <= 0.01";
  a.margin = 0.5;
  a.search = {0.25, 0.0025, "y", 1, {{"y", 0.25, 0.0025, 1}}, ""};
  a.held_out = Judgement{1.5, 0.015, "y", 0, {{"y", 1.5, 0.015, 0}}, ""};
  a.search_samples = 3;
  a.held_out_samples = 2;
  a.held_out_passed = 1;
  a.cost_share = 0.031;
  a.time_us = 12.5;
  a.time_low_us = 10;
  a.time_high_us = 20000;
  a.target = "h200";
  Trial trial;
  trial.kind = TrialKind::kSearch;
  trial.raised = {{"Add", Precision::kFP32}};
  trial.judgement = a.search;
  trial.repairs = {"clamp mask:32752"};
  trial.joined = 1;
  trial.validation = 3;
  a.trials = {trial, trial};
  a.trials[1].raised = {{"Add", Precision::kFP32}, {"third", Precision::kBF16}};
  a.trials[1].time_us = 8;
  a.trials[1].cost_share = 0.5;
  a.joined_samples = 1;
  a.validation_samples = 3;
  a.sets = {{Objective::kFastest, 1}, {Objective::kSmallest, 0}};
  a.objective = Objective::kCheapest;
  a.curve = {{10, std::numeric_limits<double>::infinity(), 0}, {12.5, 0.25, 1}};
  a.evaluations = 7;
  a.held_out_evaluations = 1;
  a.seconds = 0.1;
  a.sensitivities = {{"Add", "Add", std::nan(""), true}, {"a b", "MatMul", 1.0 / 3.0, false}};
  a.network.resize(2);
  a.network[0] = {"Add", "Add", Precision::kINT8, {}, {{Precision::kINT8, 2.5}, {Precision::kFP32, 4.0}}};
  a.network[1] = {"a b", "Shape", std::nullopt, {0}, {{Precision::kFP32, 0.125}}, Answer::Magnitudes{-149, 3}};
  return file;
}

std::string refusal(const std::string& text) {
  try {
    answer_from_json(text, "[answer] 'x'");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(AnswerJson, ReadsWhatItWrites) {
  const AnswerFile file = example();
  const std::string text = answer_to_json(file);
  const AnswerFile read = answer_from_json(text, "x");
  EXPECT_EQ(answer_to_json(read), text);
  EXPECT_EQ(read.scales, file.scales);
  EXPECT_EQ(run_options(read), run_options(file));
  EXPECT_EQ(read.answer.verdict, Answer::Verdict::kFailsHeldOut);
  EXPECT_TRUE(std::isinf(read.answer.kept[0].effect));
  EXPECT_EQ(read.answer.kept[1].reason.kind, ReasonKind::kResolution);
  EXPECT_EQ(read.answer.kept[1].precision, Precision::kFP16);
  EXPECT_EQ(read.answer.kept[0].reason.low, Precision::kFP16);
  EXPECT_EQ(read.answer.kept[0].reason.first_exponent, -3);
  EXPECT_EQ(read.answer.validation_samples, 3);
  ASSERT_EQ(read.answer.sets.size(), 2u);
  EXPECT_EQ(read.answer.sets[0].trial, 1);
  EXPECT_EQ(read.answer.objective, Objective::kCheapest);
  EXPECT_TRUE(std::isinf(read.answer.curve[0].used));
  EXPECT_EQ(read.answer.curve[1].raised, 1);
  EXPECT_EQ(read.answer.kept[0].reason.exponents, (std::vector<std::int64_t>{4, 0, 12}));
  EXPECT_FALSE(read.answer.kept[1].reason.low.has_value());
  EXPECT_TRUE(read.answer.kept[1].reason.exponents.empty());
  const auto& region = std::get<ScaleRegion>(read.answer.repairs[2].change);
  EXPECT_EQ(region.exponent, -18);
  ASSERT_EQ(region.edits.size(), 2u);
  EXPECT_EQ(region.edits[1].kind, ScaleEdit::Kind::kInsertion);
  EXPECT_EQ(region.edits[1].name, "Pow");
  EXPECT_EQ(region.edits[0].exponent, -9);
  EXPECT_EQ(read.answer.sensitivities[1].effect, 1.0 / 3.0);
  EXPECT_EQ(read.answer.held_out->outputs[0].value, 0.015);
  ASSERT_EQ(read.answer.network.size(), 2u);
  EXPECT_EQ(read.answer.network[0].low, Precision::kINT8);
  EXPECT_EQ(read.answer.network[0].time_us, file.answer.network[0].time_us);
  EXPECT_FALSE(read.answer.network[0].magnitudes.has_value() || read.answer.network[1].low.has_value());
  EXPECT_EQ(read.answer.network[1].inputs, std::vector<int>{0});
  EXPECT_EQ(read.answer.network[1].magnitudes->smallest, -149);
  EXPECT_EQ(read.answer.trials.size(), 2u);
  AnswerFile plain;
  EXPECT_EQ(answer_to_json(answer_from_json(answer_to_json(plain), "x")), answer_to_json(plain));
  EXPECT_FALSE(answer_from_json(answer_to_json(plain), "x").answer.held_out.has_value());
}

TEST(AnswerJson, ReadsVersion1) {
  auto json = nlohmann::ordered_json::parse(answer_to_json(example()));
  json["version"] = 1;
  json.erase("names");
  json["sensitivities"] = nlohmann::ordered_json::parse(R"([
    {"name": "Add", "op": "Add", "effect": "nan", "measured": true},
    {"name": "a b", "op": "MatMul", "effect": 0.25, "measured": false}])");
  json["trials"] = nlohmann::ordered_json::parse(R"([
    {"kind": "hold-out", "repairs": ["clamp mask:32752"], "raised": [["Other", "fp32"], ["Add", "fp16"]], "passed": false,
     "margin": 1.0, "cost_share": 0.5, "time_us": 3.5, "seconds": 0.1,
     "error": {"used": "inf", "value": 0.25, "worst_output": "y", "worst_sample": 3, "problem": "1 NaN",
               "outputs": [{"output": "y", "used": "inf", "value": 0.25, "sample": 3}]}},
    {"kind": "search", "repairs": [], "raised": [], "passed": true, "samples_passed": 2, "joined": 1, "sample_used": [0.1],
     "margin": 0.5, "cost_share": 0, "time_us": 3, "seconds": 1,
     "error": {"used": 0.25, "value": 0.5, "worst_output": "y", "worst_sample": 0, "problem": "", "outputs": []}}])");
  const Answer answer = answer_from_json(json.dump(), "x").answer;
  ASSERT_EQ(answer.sensitivities.size(), 2u);
  EXPECT_TRUE(std::isnan(answer.sensitivities[0].effect) && answer.sensitivities[0].measured);
  EXPECT_EQ(answer.sensitivities[1].op, "MatMul");
  ASSERT_EQ(answer.trials.size(), 2u);
  EXPECT_EQ(answer.trials[0].raised, RaisedLayers({{"Add", Precision::kFP16}, {"Other", Precision::kFP32}}));
  EXPECT_EQ(answer.trials[0].judgement.problem, "1 NaN");
  EXPECT_EQ(answer.trials[0].repairs, std::vector<std::string>{"clamp mask:32752"});
  EXPECT_EQ(answer.trials[0].time_us, 3.5);
  EXPECT_TRUE(answer.trials[1].raised.empty());
  EXPECT_EQ(answer.trials[1].joined, 1);
  EXPECT_EQ(answer.trials[1].sample_used, std::vector<double>{0.1});
}

TEST(AnswerJson, ReadsTheOldSpellingOfEqualize) {
  AnswerFile file = example();
  std::get<Equalize>(file.answer.repairs[1].change).copies = true;
  file.answer.trials[0].repairs = {"equalize-copy hidden:0.25"};
  const std::string text = answer_to_json(file);
  EXPECT_THAT(text, AllOf(HasSubstr("\"kind\":\"equalize-copy\""), HasSubstr("\"equalize-copy hidden:0.25\"")));
  const std::string old =
      replaced(replaced(text, "\"equalize-copy\"", "\"equalise-copy\""), "\"equalize-copy ", "\"equalise-copy ");
  EXPECT_EQ(answer_to_json(answer_from_json(old, "x")), text);
}

TEST(AnswerJson, KnowsTheBuildOfEarlierReleasesByItsWords) {
  AnswerFile file = example();
  file.path = "m.answer.json";
  const std::string text = answer_to_json(file);
  EXPECT_THAT(run_options(file), AllOf(Contains("--repairs"), Contains("m.answer.json"), Contains("--trt-outputs")));
  auto json = nlohmann::ordered_json::parse(text);
  json.erase("build");
  AnswerFile old = answer_from_json(json.dump(), "x");
  old.path = file.path;
  EXPECT_EQ(run_options(old), run_options(file));
  EXPECT_TRUE(old.build.assume_lowest);
  EXPECT_EQ(old.build.target, "l4");
  EXPECT_EQ(old.build.external_data_dir, "weights");
  EXPECT_THAT(old.build.layer_precisions, ElementsAre(std::pair("own", "float16")));
  EXPECT_THAT(old.build.clamp_constants, ElementsAre("mask:1e4"));
  ASSERT_EQ(old.build.changes.size(), 1u);
  EXPECT_EQ(old.build.changes[0].option, "--trt-outputs");
  EXPECT_THAT(old.build.changes[0].values, ElementsAre("y", "z"));
  // The flag of each precision says what the file says elsewhere.
  json["run_options"] = {"--trt"};
  for (const LayerForm& form : layer_forms()) json["run_options"].push_back(form.flag());
  EXPECT_TRUE(answer_from_json(json.dump(), "x").build.changes.empty());
}

TEST(AnswerJson, ReadsFilesWithoutExponents) {
  auto json = nlohmann::ordered_json::parse(answer_to_json(example()));
  for (auto& layer : json["layers"]) {
    layer["reason"].erase("low");
    layer["reason"].erase("exponents");
  }
  const AnswerFile read = answer_from_json(json.dump(), "x");
  EXPECT_FALSE(read.answer.kept[0].reason.low.has_value());
  EXPECT_TRUE(read.answer.kept[0].reason.exponents.empty());
}

TEST(AnswerJson, RefusesWhatIsNoAnswer) {
  const std::string text = answer_to_json(example());
  EXPECT_THAT(refusal("{"), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("expected an answer of `ulpscope precision search`"));
  EXPECT_THAT(refusal(R"({"format": "other", "version": 2})"), HasSubstr("got other JSON"));
  EXPECT_THAT(refusal(replaced(text, "\"version\": 2", "\"version\": 3")),
              HasSubstr("expected version 1 to 2 of the format, got 3"));
  EXPECT_THAT(refusal(replaced(text, "\"resolution\"", "\"bad luck\"")),
              HasSubstr("layers[1].reason.kind: expected one of overflow, underflow"));
  EXPECT_THAT(refusal(replaced(text, "\"precision\":\"fp32\"", "\"precision\":\"fp12\"")),
              HasSubstr("layers[0].precision: expected a precision (fp32, tf32, fp16, bf16, fp8, int8, mxfp8, "));
  EXPECT_THAT(refusal(replaced(text, "\"candidates\": 12", "\"candidates\": -3")),
              HasSubstr("candidates: expected a count, got -3"));
  EXPECT_THAT(refusal(replaced(text, "\"first\":-3", "\"first\":123456")),
              HasSubstr("layers[0].reason.exponents.first: expected the exponent of a number, got 123456"));
  EXPECT_THAT(refusal(replaced(text, "[4,0,12]", "[-4,0,12]")),
              HasSubstr("layers[0].reason.exponents.counts[0]: expected a count, got -4"));
  EXPECT_THAT(
      refusal(replaced(text, "\"insertion\"", "\"deletion\"")),
      HasSubstr("repairs[2].edits[1].kind: expected one of constant, shared-constant, insertion, epsilon, int8-scale"));
  EXPECT_THAT(refusal(replaced(text, "\"kind\":\"equalize\"", "\"kind\":\"equal\"")),
              HasSubstr("repairs[1].kind: expected one of clamp, scale-shift, scale, equalize, correct-biases, "
                        "equalize-copy, got 'equal'"));
  EXPECT_THAT(refusal(replaced(text, "\"limit\":-18.0", "\"limit\":1e300")),
              HasSubstr("repairs[2].limit: expected an exponent of 2, got 1e+300"));
  EXPECT_THAT(refusal(replaced(text, "\"exponent\":-9", "\"exponent\":-900")),
              HasSubstr("repairs[2].edits[0].exponent: expected a number from -64 to 64, got -900"));
  EXPECT_THAT(refusal(replaced(text, "\"following\"", "\"leading\"")), HasSubstr("expected the key \"following\""));
  EXPECT_THAT(refusal(replaced(text, "\"fp32\":\"0\"", "\"fp32\":\"0-9\"")),
              HasSubstr("trials[0].raised.fp32: expected ranges of layers such as \"0-4 7\", below 4, got '0-9'"));
  EXPECT_THAT(refusal(replaced(text, "\"base\":0", "\"base\":1")),
              HasSubstr("trials[1].raised.base: expected the number of an earlier trial, got 1"));
  EXPECT_THAT(refusal(replaced(text, "\"layer\": [0,2]", "\"layer\": [0,7]")),
              HasSubstr("sensitivities.layer[1]: expected the number of a name, below 3, got 7"));
  EXPECT_THAT(refusal(replaced(text, "\"measured\": [0]", "\"measured\": [2]")),
              HasSubstr("sensitivities.measured[0]: expected a row, below 2, got 2"));
  EXPECT_THAT(refusal(replaced(text, "[[],[0]]", "[[],[1]]")),
              HasSubstr("network.inputs[1][0]: expected an earlier row, below 1, got 1"));
  EXPECT_THAT(refusal(replaced(text, "[-149,3]", "[4,3]")),
              HasSubstr("network.magnitudes[1]: expected the smallest exponent and the largest"));
  EXPECT_THAT(refusal(replaced(text, "[-149,3]", "[-150,3]")),
              HasSubstr("expected the exponent of a float32, got -150"));
  EXPECT_THAT(refusal(replaced(text, "{\"fp32\":[4.0,0.125]", "{\"fp31\":[4.0,0.125]")),
              HasSubstr("expected a precision as its key"));
  EXPECT_THAT(refusal(replaced(text, "[4.0,0.125]", "[4.0]")), HasSubstr("expected as many as layers, 2"));
  for (std::size_t cut = 0; cut < text.size() - 2; cut += 97)
    EXPECT_THAT(refusal(text.substr(0, cut)), HasSubstr("[answer] 'x'"));
}

TEST(AnswerJson, IsAFile) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "ulpscope_answer_test.json";
  AnswerFile file = example();
  file.path = path;
  write_answer(path, file);
  EXPECT_EQ(answer_to_json(read_answer(path)), answer_to_json(file));
  EXPECT_THAT(hash_of_file(path), ::testing::MatchesRegex("xxh3:[0-9a-f]+"));
  std::filesystem::remove(path);
  EXPECT_THROW(read_answer(path), Error);
}

TEST(AnswerJson, FilesOfEarlierReleasesHaveNoObjective) {
  const std::string text = answer_to_json(example());
  const AnswerFile old = answer_from_json(replaced(text, ",\n \"objective\": \"cheapest\"", ""), "x");
  EXPECT_EQ(old.answer.objective, std::nullopt);
  EXPECT_THAT(answer_to_json(old), HasSubstr("\"objective\": null"));
  EXPECT_EQ(answer_from_json(answer_to_json(old), "x").answer.objective, std::nullopt);
  EXPECT_THAT(answer_text(old), Not(HasSubstr("Chosen for")));
  EXPECT_THAT(refusal(replaced(text, "\"objective\": \"cheapest\"", "\"objective\": \"best\"")),
              HasSubstr("objective: expected one of fastest, smallest, cheapest"));
}

TEST(Answer, HasOtherSets) {
  AnswerFile file = example();
  file.path = "m.answer.json";
  file.answer.kept.push_back({"asked", "Mul", {"asked"}, Precision::kFP32, 0, {ReasonKind::kRequested}});
  file.answer.repairs.clear();
  file.build.changes.clear();
  const AnswerFile fastest = with_set(file, Objective::kFastest);
  std::vector<std::string> names;
  for (const KeptLayer& layer : fastest.answer.kept) names.push_back(layer.name);
  EXPECT_THAT(names, ElementsAre("Add", "third", "asked"));
  EXPECT_EQ(fastest.answer.kept[0].reason.kind, ReasonKind::kOverflow);
  EXPECT_EQ(fastest.answer.kept[1].precision, Precision::kBF16);
  EXPECT_THAT(run_options(fastest),
              ElementsAre("--trt", "--fp16", "--int8", "--fusion", "none", "--assume-lowest", "--precision-constraints",
                          "obey", "--calibration-cache", "m.cache", "--target", "l4", "--external-data-dir", "weights",
                          "--layer-precisions", "Add:float32", "third:bfloat16", "asked:float32", "own:float16",
                          "--clamp-constants", "mask:1e4"));
  EXPECT_EQ(fastest.answer.time_us, 8);
  EXPECT_EQ(fastest.answer.objective, Objective::kFastest);
  EXPECT_EQ(fastest.answer.cost_share, 0.5);
  EXPECT_THAT(fastest.answer.message, HasSubstr("fastest"));
  EXPECT_EQ(with_trial(file, 1).answer.objective, std::nullopt);
  // Without layers there is no option.
  file.answer.trials[0].raised = {};
  file.answer.kept.pop_back();
  file.build.layer_precisions.clear();
  EXPECT_THAT(run_options(with_set(file, Objective::kSmallest)), Not(Contains("--layer-precisions")));
  try {
    with_set(file, Objective::kCheapest);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("m.answer.json"), HasSubstr("cheapest"), HasSubstr("--objective")));
  }
}

TEST(AnswerText, SaysWhatHeldOutSamplesAreWorth) {
  AnswerFile file = example();
  file.answer.held_out = Judgement{0.5, 0.005, "y", 0, {{"y", 0.5, 0.005, 0}}, ""};
  file.answer.held_out_samples = 59;  // 0.95^59 = 0.0485
  EXPECT_THAT(answer_text(file), HasSubstr("at most 5 % of such data fail"));
  EXPECT_THAT(answer_text(file), HasSubstr("3 samples more took part in the choice"));
  file.answer.held_out_samples = 1;
  file.answer.validation_samples = 0;
  EXPECT_THAT(answer_text(file), HasSubstr("at most 95 % of such data fail"));
  file.answer.validation_samples = 1;
  EXPECT_THAT(answer_text(file), HasSubstr("no other sample is left to judge it"));
  EXPECT_THAT(answer_text(file), HasSubstr("Also proven, the fastest set: 2 layers, 8 us, 50 % of the multiply-adds "
                                           "(convert --objective fastest)"));
}

TEST(AnswerText, SaysWhatCounts) {
  const std::string text = answer_text(example());
  EXPECT_THAT(text, ::testing::StartsWith("Passes on the samples of the search, but not on 1 of 2"));
  EXPECT_THAT(text, HasSubstr("Layers to keep in higher precision: 2 of 12 candidates\n    Add (Add, fp32)\n"
                              "        overflow: 4 of 16 elements of 'sum' lie beyond 65504.\n"));
  EXPECT_THAT(text, HasSubstr("    a b (MatMul, fp16), nodes n1, n2\n"));
  EXPECT_THAT(text, HasSubstr("Movement layers that follow them, without arithmetic of their own: 2\n    Reshape_1\n"));
  EXPECT_THAT(text, HasSubstr("(a repaired layer does not count as kept): 3\n    clamp 'mask': clamped\n"));
  EXPECT_THAT(text, HasSubstr("Tolerance: rel-l2 <= 0.01, searched at 0.5 of it\n"));
  EXPECT_THAT(text,
              HasSubstr("on the 3 samples of the search: 0.0025, 0.25 of the tolerance, at output 'y' of sample 1"));
  EXPECT_THAT(text, HasSubstr("on the 2 samples held out: 0.015, 1.5 of the tolerance, at output 'y' of sample 0; "
                              "1 of 2 pass\n"));
  EXPECT_THAT(text, HasSubstr("Cost: 3.1 % of the multiply-adds stay in higher precision; estimated on h200: 12.5 us, "
                              "all in the highest precision 20 ms, all in the lowest 10 us\n"));
  EXPECT_THAT(text, HasSubstr("Chosen for: the fewest multiply-adds (cheapest)\n"));
  EXPECT_THAT(text, HasSubstr("Spent: 7 evaluations and 1 of the held-out samples in 0.1 s\n"));
  EXPECT_THAT(text, HasSubstr("    ulpscope run 'my model.onnx' --trt --fp16 --int8 --fusion none --assume-lowest "
                              "--precision-constraints obey --calibration-cache m.cache --target l4 "
                              "--external-data-dir weights --trt-outputs y z "
                              "--layer-precisions Add:float32 'a b:float16' own:float16 --repairs"));
  EXPECT_EQ(layer_precisions_text(example().answer), "Add:float32\na b:float16\n");
}

TEST(AnswerText, CutsLongLists) {
  AnswerFile file = example();
  file.answer.kept.resize(1);
  for (int i = 1; i < 500; ++i) {
    file.answer.kept.push_back(file.answer.kept[0]);
    file.answer.kept.back().name = "layer_" + std::to_string(i);
    file.answer.following.push_back("follows_" + std::to_string(i));
  }
  const std::string cut = answer_text(file);
  EXPECT_THAT(cut, HasSubstr("... and 470 more (-v shows all"));
  EXPECT_THAT(cut, Not(HasSubstr("layer_40")));
  EXPECT_THAT(cut, HasSubstr("a command of"));
  EXPECT_LT(cut.size(), 5000u);
  const std::string all = answer_text(file, true);
  EXPECT_THAT(all, HasSubstr("layer_499 ("));
  EXPECT_THAT(all, HasSubstr("layer_499:float32"));
  EXPECT_THAT(all, HasSubstr("follows_499"));
}

TEST(AnswerText, RecommendsNothingWithoutAPassingSet) {
  AnswerFile file = example();
  file.answer.verdict = Answer::Verdict::kUnverified;
  file.answer.kept.clear();
  file.answer.search = {};
  const std::string text = answer_text(file);
  EXPECT_THAT(text, HasSubstr("no set of layers is known to pass yet"));
  EXPECT_THAT(text, Not(HasSubstr("ulpscope run")));
  EXPECT_THAT(text, Not(HasSubstr("none.")));
}

TEST(AnswerText, QuotesForTheShell) {
  EXPECT_EQ(shell_word("a/b:float32"), "a/b:float32");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("*"), "'*'");
}

}  // namespace
}  // namespace ulpscope::testing
