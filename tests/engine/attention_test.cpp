// Attention in the schedules of small networks.
#include "engine/attention.h"

#include <gtest/gtest.h>

#include "engine/build_helpers.h"
#include "engine/fusion.h"

namespace ulpscope::testing {
namespace {

struct Described {
  std::shared_ptr<const Network> network;
  std::shared_ptr<const Specialization> spec;
  Schedule schedule;
  std::vector<AttentionKernel> attentions;

  Described(std::shared_ptr<const Network> of, Fusion fusion, AttentionRule rule = AttentionRule::kNormalized,
            PrecisionSet enabled = {Precision::kFP16})
      : network(std::move(of)) {
    std::vector<Shape> shapes;
    for (TensorId id : network->inputs) shapes.push_back(*network->tensor(id).shape);
    spec = specialize(*network, shapes);
    BuildOptions options = fp16_options(ConstraintMode::kObey, fusion, true);
    options.attention = rule;
    options.enabled = enabled;
    const Assignment assignment = assign_precisions(*spec, options);
    schedule = describe(*spec, assignment, fuse(*spec, assignment, fusion));
    attentions = attentions_of(*spec, schedule, uses_of(schedule));
  }
};

/// softmax(q (k / 2) * 0.125 + mask) v, where rows without a score may become 0; `watched` is an output, too.
std::shared_ptr<Network> attention(bool nan_is_zero, const std::string& watched = "") {
  Model model;
  model.input("q", {2, 4, 8});
  model.input("k", {2, 8, 6});
  model.input("v", {2, 6, 8});
  model.node("Mul", {"k", "half"}, {"halved"}, "Halve");
  model.node("MatMul", {"q", "halved"}, {"scores"}, "Scores");
  model.node("Mul", {"scores", "scale"}, {"scaled"}, "Scale");
  model.node("Add", {"scaled", "mask"}, {"masked"}, "Mask");
  model.node("Softmax", {"masked"}, {"weights"}, "Softmax");
  if (nan_is_zero) {
    model.node("IsNaN", {"weights"}, {"empty"}, "Empty");
    model.node("Where", {"empty", "zero", "weights"}, {"kept"}, "Keep");
  }
  model.node("MatMul", {nan_is_zero ? "kept" : "weights", "v"}, {"y"}, "Values");
  *model.graph().add_initializer() = float_tensor("half", {}, {0.5f});
  *model.graph().add_initializer() = float_tensor("scale", {}, {0.125f});
  *model.graph().add_initializer() = float_tensor("mask", {6}, {0, 0, 0, 0, -1, -1});
  *model.graph().add_initializer() = float_tensor("zero", {}, {0});
  model.output("y");
  if (!watched.empty()) model.output(watched);
  return model.load();
}

TEST(Attention, IsFoundWhetherItIsOneGroupOrSeveral) {
  for (const Fusion fusion : {Fusion::kPointwise, Fusion::kFull})
    for (const bool nan_is_zero : {false, true}) {
      const Described d(attention(nan_is_zero), fusion);
      ASSERT_EQ(d.attentions.size(), 1u) << static_cast<int>(fusion) << nan_is_zero;
      const AttentionKernel& found = d.attentions[0];
      EXPECT_EQ(d.network->layer(found.scores->layer).name, "Scores");
      EXPECT_EQ(d.network->layer(found.values->layer).name, "Values");
      EXPECT_EQ(found.q.tensor, d.network->find_tensor("q"));
      EXPECT_EQ(found.k.tensor, d.network->find_tensor("k"));
      EXPECT_EQ(found.v.tensor, d.network->find_tensor("v"));
      EXPECT_EQ(found.q_factor, std::nullopt);
      EXPECT_EQ(found.k_factor, 0.5f);
      EXPECT_EQ(found.rounding, fusion == Fusion::kFull && !nan_is_zero ? Rounding::kNone : Rounding::kF16);
      EXPECT_EQ(found.nan_is_zero, nan_is_zero);
      EXPECT_EQ(found.parts.size(), nan_is_zero ? 5u : 3u);
    }
}

/// By the rule of flash attention the softmax leaves exponentials and the sums of their rows, where that changes what
/// is rounded.
TEST(Attention, LeavesExponentialsWhereItIsOneGroupThatRounds) {
  const auto flash = [](const Described& d) {
    EXPECT_EQ(d.attentions.size(), 1u);
    const bool found = d.attentions.at(0).flash;
    EXPECT_EQ(d.attentions[0].softmax->outputs.size(), found ? 2u : 1u);
    EXPECT_EQ(d.attentions[0].values->epilogue.loads.size(), found ? 2u : 1u);
    return found;
  };
  constexpr AttentionRule kFlash = AttentionRule::kFlash;
  EXPECT_TRUE(flash(Described(attention(false), Fusion::kFull, kFlash)));
  EXPECT_FALSE(flash(Described(attention(false), Fusion::kFull)));
  EXPECT_FALSE(flash(Described(attention(false), Fusion::kPointwise, kFlash)));
  EXPECT_FALSE(flash(Described(attention(true), Fusion::kFull, kFlash)));
  EXPECT_FALSE(flash(Described(attention(false), Fusion::kFull, kFlash, {})));
  const Described d(attention(false), Fusion::kFull, kFlash);
  const ProgramKernel& softmax = *d.attentions[0].softmax;
  const TensorId weights = d.network->find_tensor("weights");
  EXPECT_EQ(softmax.outputs[0].store.tensor, weights);
  EXPECT_EQ(softmax.outputs[0].store.rounding, Rounding::kF16);
  EXPECT_EQ(softmax.program.values[softmax.outputs[0].source].instruction, Instruction::kExp);
  EXPECT_TRUE(softmax.outputs[1].store.row_sums);
  EXPECT_EQ(softmax.outputs[1].store.rounding, Rounding::kNone);
  EXPECT_EQ(shape_of(*d.spec, softmax.outputs[1].store), (Shape{2, 4, 1}));
  EXPECT_NE(identity_of(KernelDescription(softmax)),
            identity_of(KernelDescription(*Described(attention(false), Fusion::kFull).attentions[0].softmax)));
}

/// Several kernels between the products are not taken together.
TEST(Attention, IsNoneWhereNothingIsFused) {
  EXPECT_TRUE(Described(attention(false), Fusion::kNone).attentions.empty());
}

TEST(Attention, IsNoneWhereSomebodyElseReadsWhatLiesBetween) {
  for (const char* watched : {"scaled", "masked", "weights", "kept"})
    EXPECT_TRUE(Described(attention(true, watched), Fusion::kFull).attentions.empty()) << watched;
}

}  // namespace
}  // namespace ulpscope::testing
