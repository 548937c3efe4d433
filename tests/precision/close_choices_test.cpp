// A search warns of choices between values that its rounding may exchange, and of no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "compare/log_capture.h"
#include "engine/build_helpers.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kTokens = 8, kWidth = 16, kExperts = 6;

/// What a search logs whose network is scores = x w, and a layer that chooses by them. x is in [0.5, 1], `weight` of a
/// place and an expert.
std::string logged(const std::function<float(std::int64_t, std::int64_t)>& weight,
                   const std::function<void(Model&)>& choose) {
  Model model;
  model.input("x", {kTokens, kWidth});
  model.node("MatMul", {"x", "w"}, {"scores"}, "Router");
  std::vector<float> w;
  for (std::int64_t k = 0; k < kWidth; ++k)
    for (std::int64_t e = 0; e < kExperts; ++e) w.push_back(weight(k, e));
  *model.graph().add_initializer() = float_tensor("w", {kWidth, kExperts}, w);
  choose(model);
  model.output("y");
  SearchTask task = fp16_search();
  LogCapture log;
  const SearchData data = data_for(model.load(), "x", {kTokens, kWidth}, 0.5, 1);
  EXPECT_EQ(run(data, *allclose(1e6, 0), task).verdict, Answer::Verdict::kFound);
  std::string text;
  for (const auto& line : log.lines()) text += line + "\n";
  return text;
}

void set(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  auto* attribute = node.add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

void top_two(Model& model, const std::string& of, bool largest = true) {
  set(model.node("TopK", {of, "k"}, {"y", "indices"}, "Choice"), "largest", largest ? 1 : 0);
  auto* k = model.graph().add_initializer();
  k->set_name("k");
  k->set_data_type(onnx::TensorProto::INT64);
  k->add_dims(1);
  k->add_int64_data(2);
}

/// Experts whose scores, about 6, differ by 1e-4 where float16 steps by 4e-3; and others far from each other.
float close(std::int64_t k, std::int64_t e) { return 0.5f + 1e-5f * static_cast<float>((k * 7 + e * 5) % 11); }
float apart(std::int64_t, std::int64_t e) { return 0.5f + static_cast<float>(e); }

TEST(CloseChoices, AreNamedWithTheirSamples) {
  for (const bool largest : {true, false}) {
    const std::string text = logged(close, [&](Model& model) { top_two(model, "scores", largest); });
    EXPECT_THAT(text, HasSubstr("1 layer(s) choose between values that differ by less than rounding errors"));
    EXPECT_THAT(text, HasSubstr("'Choice' (TopK) in 7 of 7 samples, "));
    EXPECT_THAT(text, HasSubstr(" of 56 choices"));
  }
  const std::string best = logged(close, [](Model& model) {
    set(model.node("ArgMax", {"scores"}, {"best"}, "Best"), "axis", -1);
    set(model.node("Cast", {"best"}, {"y"}, "Cast"), "to", onnx::TensorProto::FLOAT);
    model.output("scores");
  });
  EXPECT_THAT(best, HasSubstr("'Best' (ArgMax) in 7 of 7 samples, "));
}

TEST(CloseChoices, AreNotNamedWhereValuesAreApart) {
  EXPECT_THAT(logged(apart, [](Model& model) { top_two(model, "scores"); }), Not(HasSubstr("choose between")));
  // One expert has a score, all others have the same 0.
  EXPECT_THAT(logged([](auto, std::int64_t e) { return e == 3 ? 1.0f : -1.0f; },
                     [](Model& model) {
                       model.node("Relu", {"scores"}, {"rectified"}, "Relu");
                       top_two(model, "rectified");
                     }),
              Not(HasSubstr("choose between")));
}

/// A Softmax of values so large that rounding moves them by more than 1 is a choice, others are none.
TEST(CloseChoices, AreThoseOfASaturatedSoftmax) {
  const auto softmax = [](Model& model) { model.node("Softmax", {"scores"}, {"y"}, "Attention"); };
  EXPECT_THAT(logged([](auto k, auto e) { return 1000 * close(k, e); }, softmax),
              HasSubstr("'Attention' (Softmax) in 7 of 7 samples, "));
  EXPECT_THAT(logged([](auto k, auto e) { return 1000 * apart(k, e); }, softmax), Not(HasSubstr("choose between")));
  EXPECT_THAT(logged(close, softmax), Not(HasSubstr("choose between")));
}

}  // namespace
}  // namespace ulpscope::testing
