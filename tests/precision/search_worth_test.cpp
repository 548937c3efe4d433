// Repairs of an answer: those that it does not need are none of it, and none harms data that are larger.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "precision/repair.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::ResultOf;
using ::testing::SizeIs;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kRows = 8;

SearchTask repairing() {
  SearchTask task = fp16_search();
  task.repair = true;
  return task;
}

/// Causal attention without projections: y = Softmax(x + mask) v.
Model attention(float masked) {
  Model model;
  model.input("x", {kRows, kRows});
  std::vector<float> mask(kRows * kRows, 0);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = r + 1; c < kRows; ++c) mask[r * kRows + c] = masked;
  *model.graph().add_initializer() = float_tensor("mask", {kRows, kRows}, mask);
  *model.graph().add_initializer() = float_tensor("v", {kRows, kRows}, floats(values_in({kRows, kRows}, -1, 1, 9)));
  model.node("Add", {"x", "mask"}, {"scores"}, "Mask");
  model.node("Softmax", {"scores"}, {"p"}, "Softmax");
  model.node("MatMul", {"p", "v"}, {"y"}, "Mix");
  model.output("y");
  return model;
}

/// The same with a mask that is computed: (x > 0.5) * lowest, which is 0 * -inf = NaN in float16.
Model computed_mask(bool clips) {
  Model model;
  model.input("x", {kRows, kRows});
  *model.graph().add_initializer() = float_tensor("half", {}, {0.5F});
  *model.graph().add_initializer() = float_tensor("lowest", {}, {-3.4e38F});
  *model.graph().add_initializer() = float_tensor("v", {kRows, kRows}, floats(values_in({kRows, kRows}, -1, 1, 9)));
  model.node("Greater", {"x", "half"}, {"greater"}, "Greater");
  auto& cast = model.node("Cast", {"greater"}, {"hidden"}, "Hidden");
  add_attribute(cast, "to", onnx::AttributeProto::INT).set_i(onnx::TensorProto::FLOAT);
  model.node("Mul", {"hidden", "lowest"}, {"mask"}, "Lowest");
  model.node("Add", {"x", "mask"}, {"scores"}, "Mask");
  model.node("Softmax", {"scores"}, {"p"}, "Softmax");
  model.node("MatMul", {"p", "v"}, {clips ? "mixed" : "y"}, "Mix");
  if (clips) model.node("Clip", {"mixed", "lowest"}, {"y"}, "Clip");
  model.output("y");
  return model;
}

Answer search(Model model, const SearchTask& task, double low = -1, double high = 1) {
  const SearchData data = data_for(model.load(), "x", {kRows, kRows}, low, high);
  return run(data, *make_metric_criterion(MetricKind::kRelativeL2, 5e-3), task);
}

TEST(RepairWorth, MasksThatSoftmaxTurnsInto0AreLeftAlone) {
  for (const float masked : {-kInfinity, -3.4e38F, -1e9F}) {
    const Answer answer = search(attention(masked), repairing());
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << masked;
    EXPECT_THAT(answer.repairs, IsEmpty()) << masked;
    EXPECT_THAT(answer.kept, IsEmpty()) << masked;
    // Of the answer as it is.
    EXPECT_LE(answer.search.used, answer.margin);
    ASSERT_TRUE(answer.held_out.has_value());
    EXPECT_EQ(answer.held_out_passed, answer.held_out_samples);
  }
}

TEST(RepairWorth, WhatIsNeededSaysWhatItBuys) {
  const Answer answer = search(computed_mask(false), repairing());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(answer.kept, IsEmpty());
  ASSERT_THAT(answer.repairs, SizeIs(1));
  EXPECT_EQ(kind_of(answer.repairs[0]), "clamp");
  EXPECT_TRUE(std::isinf(answer.repairs[0].used_before));
  EXPECT_EQ(answer.repairs[0].used_after, answer.search.used);
  // The trial without it is no set of this answer.
  EXPECT_THAT(answer.trials, ::testing::Contains(::testing::AllOf(Field(&Trial::kind, TrialKind::kRepair),
                                                                  Field(&Trial::repairs, IsEmpty()))));
  EXPECT_THAT(answer.trials, ::testing::Contains(::testing::AllOf(Field(&Trial::kind, TrialKind::kSearch),
                                                                  Field(&Trial::repairs, SizeIs(1)))));
}

TEST(RepairWorth, BoundsAreNoMasks) {
  // The same constant is a bound of Clip, too.
  const Answer answer = search(computed_mask(true), repairing());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(answer.repairs, IsEmpty());
  EXPECT_THAT(kept(answer), ::testing::Contains("Lowest"));
}

TEST(RepairWorth, NothingIsCutThatFp16Holds) {
  for (const float top : {kInfinity, 3.4e38F, 70000.0F}) {
    Model model;
    model.input("x", {kRows, kRows});
    *model.graph().add_initializer() = float_tensor("two", {}, {2});
    *model.graph().add_initializer() = float_tensor("zero", {}, {0});
    *model.graph().add_initializer() = float_tensor("top", {}, {top});
    model.node("Mul", {"x", "two"}, {"a"}, "Double");
    model.node("Clip", {"a", "zero", "top"}, {"y"}, "Clip");
    model.output("y");
    const Answer answer = search(std::move(model), repairing(), 0, 15000);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
    EXPECT_THAT(answer.repairs, IsEmpty()) << top;
    EXPECT_THAT(answer.kept, IsEmpty()) << top;
  }
}

TEST(RepairWorth, WhereEverythingStaysHighNothingIsRepaired) {
  // Values beyond fp16 between two products: a region that is scaled, unless nothing runs in fp16 after all.
  Model model;
  model.input("x", {kRows, kRows});
  for (const auto& [name, gain] : {std::pair("up", 2e5), {"down", 2e-6}})
    *model.graph().add_initializer() =
        float_tensor(name, {kRows, kRows}, floats(values_in({kRows, kRows}, -gain, gain, 7)));
  model.node("MatMul", {"x", "up"}, {"large"}, "Up");
  model.node("MatMul", {"large", "down"}, {"y"}, "Down");
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {kRows, kRows}, -1, 1);
  const Answer high = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-30), repairing());
  EXPECT_THAT(high.repairs, IsEmpty()) << high.message;
  EXPECT_THAT(kept(high), ElementsAre("Up", "Down"));
  const Answer low = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), repairing());
  EXPECT_THAT(low.repairs, ElementsAre(ResultOf(kind_of, "scale")));
  EXPECT_THAT(low.kept, IsEmpty());
}

TEST(RepairWorth, ASearchThatGoesOnSaysTheSame) {
  const SearchData data = data_for(computed_mask(false).load(), "x", {kRows, kRows}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-3);
  Journal journal;
  const Answer first = search_precisions(data, *criterion, repairing(), journal);
  const std::size_t trials = journal.trials().size();
  const Answer again = search_precisions(data, *criterion, repairing(), journal);
  EXPECT_EQ(journal.trials().size(), trials);
  ASSERT_EQ(first.trials.size(), again.trials.size());
  EXPECT_EQ(first.evaluations, again.evaluations);
  EXPECT_EQ(words_of(first.repairs), words_of(again.repairs));
  EXPECT_EQ(first.search.used, again.search.used);
}

TEST(RepairWorth, ConstantsWithNanOrInfinitiesEndInWords) {
  for (const float odd : {kInfinity, -kInfinity, std::nanf("")}) {
    // A region that is scaled, with an odd bound, an odd weight, and an odd mask.
    for (const char* where : {"bound", "weight", "mask"}) {
      Model model;
      model.input("x", {kRows, kRows});
      const std::string place = where;
      std::vector<float> weights = floats(values_in({kRows, kRows}, -2e5, 2e5, 3));
      if (place == "weight") weights[5] = odd;
      *model.graph().add_initializer() = float_tensor("w", {kRows, kRows}, weights);
      *model.graph().add_initializer() = float_tensor("bound", {}, {place == "bound" ? odd : 1e30F});
      *model.graph().add_initializer() = float_tensor("back", {}, {1e-5F});
      *model.graph().add_initializer() = float_tensor("mask", {}, {place == "mask" ? odd : 0});
      model.node("MatMul", {"x", "w"}, {"a"}, "Up");
      model.node("Min", {"a", "bound"}, {"b"}, "Bound");
      model.node("Mul", {"b", "back"}, {"c"}, "Back");
      model.node("Add", {"c", "mask"}, {"s"}, "Mask");
      model.node("Softmax", {"s"}, {"y"}, "y");
      model.output("y");
      SCOPED_TRACE(place + " " + std::to_string(odd));
      try {
        const Answer answer = search(std::move(model), repairing());
        for (const Repair& repair : answer.repairs) EXPECT_LT(repair.used_after, repair.used_before);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("expected numbers, got"));
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
