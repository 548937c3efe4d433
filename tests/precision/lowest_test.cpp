// What an answer says of everything in the lowest precisions, and of layers that stay higher for time alone.
#include "precision/lowest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

AnswerFile file_of(Answer answer) {
  AnswerFile file;
  file.model = "m.onnx";
  file.path = "m.fp16.answer.json";
  file.precisions = {"fp16"};
  file.fusion = "none";
  file.answer = std::move(answer);
  return file;
}

SearchData similar_squares() { return squares({4, 4, 4}, {4, 4}); }

/// Of everything in fp16, over all samples of similar_squares().
double error_of_all() {
  const Answer answer = run(similar_squares(), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), fp16_search());
  return std::max(answer.lowest->judgement.value, answer.lowest->held_out->value);
}

TEST(Lowest, PassesOnAllSamples) {
  const Answer answer = run(similar_squares(), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), fp16_search());
  ASSERT_TRUE(answer.lowest);
  EXPECT_TRUE(answer.lowest->passed());
  EXPECT_EQ(answer.lowest->samples, 3);
  EXPECT_EQ(answer.lowest->held_out_samples, 2);
  EXPECT_EQ(answer.lowest->held_out_passed, 2);
  EXPECT_FALSE(only_margin_keeps(answer));
  const std::string text = answer_text(file_of(answer));
  EXPECT_THAT(text, StartsWith("All in FP16: "));
  EXPECT_THAT(text, HasSubstr("of the tolerance, passes on 5 samples (2 of them held out)\nNo layer needs more"));
  // What is known of the held-out samples is known from the trials of the answer.
  EXPECT_EQ(answer.held_out_evaluations, 2);
}

TEST(Lowest, SaysThatOnlyTheMarginKeepsLayers) {
  SearchTask task = fp16_search();
  task.margin = 0.5;
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, error_of_all() / 0.8);
  const Answer answer = run(similar_squares(), *criterion, task);
  ASSERT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  ASSERT_FALSE(answer.kept.empty());
  EXPECT_TRUE(answer.lowest->passed());
  EXPECT_TRUE(only_margin_keeps(answer));
  AnswerFile file = file_of(answer);
  file.command = {"precision", "search", "my model.onnx", "--fp16", "--margin", "0.5", "--objective=smallest"};
  const std::string text = answer_text(file);
  EXPECT_THAT(text,
              AllOf(StartsWith("All in FP16: 0.8 of the tolerance, passes on 5 samples (2 of them held out)\n"
                               "Only the margin speaks against it: "),
                    HasSubstr("more than the 0.5 that the search aimed at"),
                    HasSubstr("ulpscope precision search 'my model.onnx' --fp16 --objective=smallest --margin 1\n"),
                    HasSubstr("Or: more samples")));
  // The file does not know what was typed.
  file.inputs = {"a.json", "b.json"};
  const std::string json = answer_to_json(file);
  EXPECT_THAT(json,
              AllOf(HasSubstr("\"only_margin\": true"), Not(HasSubstr("my model")),
                    HasSubstr("precision search m.onnx --fp16 --objective smallest --load-inputs a.json b.json")));
  // All low passes without a margin.
  task.margin = 1;
  EXPECT_THAT(run(similar_squares(), *criterion, task).kept, IsEmpty());
}

TEST(Lowest, NamesTheFirstLayerThatOverflows) {
  const SearchData data = squares({1000}, {1000, 1000});
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search());
  ASSERT_TRUE(answer.lowest);
  EXPECT_FALSE(answer.lowest->passed());
  EXPECT_EQ(answer.lowest->layer, "Square");
  EXPECT_EQ(answer.lowest->op, "Mul");
  EXPECT_EQ(answer.lowest->first_output, "y");
  EXPECT_FALSE(answer.lowest->held_out);
  EXPECT_THAT(answer_text(file_of(answer)),
              AllOf(StartsWith("All in FP16: fails: "), HasSubstr("comes from 'Square' (Mul)\n")));
}

TEST(Lowest, TellsWhereHeldOutSamplesFail) {
  const SearchData data = squares({4, 4, 4}, {4, 1000, 4});
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search());
  ASSERT_TRUE(answer.lowest && answer.lowest->held_out);
  EXPECT_TRUE(answer.lowest->judgement.passed());
  EXPECT_FALSE(answer.lowest->passed());
  EXPECT_EQ(answer.lowest->held_out_samples, 3);
  EXPECT_EQ(answer.lowest->held_out_passed, 2);
  EXPECT_THAT(answer_text(file_of(answer)), HasSubstr("on the 3 samples of the search, fails on 1 of 3 others ("));
}

TEST(Lowest, IsInTheFile) {
  SearchTask task = fp16_search();
  const Answer answer = run(squares({1000}, {1000, 1000}), *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), task);
  const std::string text = answer_to_json(file_of(answer));
  const AnswerFile again = answer_from_json(text, "x");
  ASSERT_TRUE(again.answer.lowest);
  EXPECT_EQ(again.answer.lowest->layer, "Square");
  EXPECT_EQ(answer_to_json(again), text);
  AnswerFile old = file_of(answer);
  old.answer.lowest.reset();
  EXPECT_FALSE(answer_from_json(answer_to_json(old), "x").answer.lowest);
  EXPECT_THAT(answer_text(old), StartsWith(answer.message));
}

std::string target_file(const char* name, double launch_us, double fp16_tflops) {
  const std::string path = ::testing::TempDir() + fmt::format("{}_{}.json", name, ::getpid());
  std::ofstream(path) << fmt::format(
      R"({{"format": "ulpscope-target", "version": 1, "name": "t", "bandwidth_gb_per_s": 1000, "launch_us": {}, )"
      R"("tflops": {{"fp32": 0.01, "fp16": {}}}}})",
      launch_us, fp16_tflops);
  return path;
}

/// x @ w, twice.
SearchData two_products() {
  Model model;
  model.input("x", {16, 16});
  model.node("MatMul", {"x", "w"}, {"p"}, "First");
  model.node("MatMul", {"p", "w"}, {"y"}, "Second");
  *model.graph().add_initializer() = float_tensor("w", {16, 16}, floats(values_in({16, 16}, -1, 1, 3)));
  model.output("y");
  return data_for(model.load(), "x", {16, 16}, -1, 1);
}

TEST(ForTime, LaunchesOfCastsKeepNothingHigh) {
  SearchTask task = fp16_search(Fusion::kFull);
  task.objective = Objective::kFastest;
  // Work that is next to nothing, and casts at both ends that are not.
  task.build.target = target_file("launches", 5, 0.01);
  const Answer answer = run(two_products(), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), task);
  EXPECT_GT(answer.time_low_us, answer.time_high_us);
  EXPECT_THAT(answer.kept, IsEmpty()) << answer.message;
}

TEST(ForTime, LayersSayThatTheyAreFasterSo) {
  SearchTask task = fp16_search(Fusion::kFull);
  task.objective = Objective::kFastest;
  task.build.target = target_file("slow", 0.01, 0.001);
  const Answer answer = run(two_products(), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), task);
  ASSERT_EQ(answer.kept.size(), 2u) << answer.message;
  for (const KeptLayer& layer : answer.kept) {
    EXPECT_EQ(layer.reason.kind, ReasonKind::kFaster) << layer.reason.text;
    EXPECT_THAT(layer.reason.text, StartsWith("faster so"));
  }
  EXPECT_THAT(answer_text(file_of(answer)),
              AllOf(HasSubstr("; 2 layers stay higher for time alone\n"), Not(HasSubstr("rounding"))));
  const AnswerFile again = answer_from_json(answer_to_json(file_of(answer)), "x");
  EXPECT_EQ(again.answer.kept[0].reason.kind, ReasonKind::kFaster);
}

TEST(ForTime, LittleIsNotWorthIt) {
  SearchTask task = fp16_search(Fusion::kFull);
  task.objective = Objective::kFastest;
  task.build.target = target_file("little", 0.01, 0.0097);
  const Answer answer = run(two_products(), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), task);
  EXPECT_GT(answer.time_low_us, answer.time_high_us);
  EXPECT_THAT(answer.kept, IsEmpty()) << answer.message;
}

/// Beside a product that is much faster in fp32, a layer that saves two casts of next to nothing so.
TEST(ForTime, ALayerThatSavesLittleGoesDownBesideOthers) {
  Model model;
  model.input("x", {16, 16});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  model.node("Relu", {"x"}, {"z"}, "Alone");
  *model.graph().add_initializer() = float_tensor("w", {16, 1024}, floats(values_in({16, 1024}, -1, 1, 3)));
  model.output("y");
  model.output("z");
  SearchTask task = fp16_search(Fusion::kFull);
  task.objective = Objective::kFastest;
  task.build.target = target_file("beside", 0.01, 0.001);
  const Answer answer =
      run(data_for(model.load(), "x", {16, 16}, -1, 1), *make_metric_criterion(MetricKind::kRelativeL2, 1.0), task);
  ASSERT_EQ(answer.kept.size(), 1u) << answer_text(file_of(answer));
  EXPECT_EQ(answer.kept[0].name, "Product");
  EXPECT_EQ(answer.kept[0].reason.kind, ReasonKind::kFaster);
}

TEST(Slower, NamesTheCommandsOfWhatIsFaster) {
  SearchTask task = fp16_search();
  task.margin = 0.5;
  task.build.target = target_file("casts", 5, 0.02);
  const Answer answer =
      run(similar_squares(), *make_metric_criterion(MetricKind::kRelativeL2, error_of_all() / 0.8), task);
  ASSERT_FALSE(answer.kept.empty());
  AnswerFile file = file_of(answer);
  file.command = {"precision", "search", "m.onnx", "--objective", "smallest"};
  file.answer.time_us = 2 * std::max(answer.time_low_us, answer.time_high_us);
  EXPECT_THAT(slower_text(file),
              AllOf(HasSubstr("estimated slower"), HasSubstr("than everything in the highest precision"),
                    HasSubstr("ulpscope convert m.onnx --answer m.fp16.answer.json --objective fastest -o "
                              "m.fp16.answer.fastest.onnx"),
                    HasSubstr("ulpscope precision search m.onnx --objective smallest --margin 1")));
  AnswerFile of_python = file;
  of_python.command.clear();
  EXPECT_THAT(slower_text(of_python),
              AllOf(HasSubstr("objective=\"fastest\" in Python"), Not(HasSubstr("ulpscope convert"))));
  file.answer.sets.clear();
  EXPECT_THAT(slower_text(file), HasSubstr("ulpscope precision search m.onnx --objective fastest"));
  // Where it was the fastest that was looked for, without the launches of casts, no command finds a faster one.
  file.answer.objective = Objective::kFastest;
  file.answer.lowest.reset();
  EXPECT_THAT(slower_text(file), AllOf(StartsWith("With the launches of its casts, the answer is estimated slower"),
                                       HasSubstr("the least time was looked for without these launches"),
                                       HasSubstr("the model as it is is the faster one"),
                                       Not(HasSubstr("ulpscope precision")), Not(HasSubstr("For the faster one"))));
  EXPECT_THAT(answer_text(file), HasSubstr("Chosen for: the least time (fastest), launches of casts left out\n"));
  file.answer.time_us = 0.5 * std::min(answer.time_low_us, answer.time_high_us);
  EXPECT_THAT(slower_text(file), IsEmpty());
  EXPECT_THAT(answer_text(file), HasSubstr("Chosen for: the least time (fastest)\n"));
}

}  // namespace
}  // namespace ulpscope::testing
