// Which layers become one group.
#include "engine/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/build_helpers.h"
#include "engine/random_network.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> groups_of(const Network& network, const BuildOptions& options) {
  std::vector<Shape> shapes;
  for (TensorId id : network.inputs) shapes.push_back(*network.tensor(id).shape);
  const auto spec = specialize(network, shapes);
  std::vector<std::string> names;
  for (const Group& group : fuse(*spec, assign_precisions(*spec, options), options.fusion).groups)
    names.push_back(group_name(network, group));
  return names;
}

BuildOptions level(Fusion fusion) { return fp16_options(ConstraintMode::kObey, fusion, true); }

/// Every layer is in one group; groups run in an order in which all that they read is there; what stays inside of a
/// group is read there only, is no output, has no type constraint, and all members have one precision.
void expect_invariants(const Specialization& spec, const Assignment& assignment, const Grouping& grouping) {
  const Network& network = *spec.network;
  IdMap<LayerId, int> times(network.layers.size(), 0);
  for (std::size_t g = 0; g < grouping.groups.size(); ++g) {
    const auto& members = grouping.groups[g].layers;
    ASSERT_FALSE(members.empty());
    EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
    for (LayerId id : members) {
      ++times[id];
      EXPECT_EQ(grouping.group_of[id], static_cast<int>(g));
      EXPECT_EQ(assignment.precision[id], assignment.precision[members[0]]);
      for (TensorId input : network.layer(id).inputs) {
        const LayerId producer = input == kNone ? kNone : network.tensor(input).producer;
        if (producer == kNone || spec.folded[producer]) continue;
        EXPECT_LE(grouping.group_of[producer], static_cast<int>(g)) << network.layer(id).name;
      }
    }
  }
  for (LayerId l : network.layers.ids()) EXPECT_EQ(times[l], spec.folded[l] ? 0 : 1) << network.layers[l].name;
  for (TensorId t : network.tensors.ids()) {
    if (!grouping.internal[t]) continue;
    EXPECT_FALSE(spec.output[t]);
    EXPECT_FALSE(assignment.pinned[t]);
    for (LayerId consumer : spec.consumers[t])
      EXPECT_EQ(grouping.group_of[consumer], grouping.group_of[network.tensors[t].producer]);
  }
}

TEST(Fusion, KeepsItsInvariantsOnRandomNetworks) {
  constexpr DataType kTypes[]{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    RandomNetwork random(seed, 25);
    std::mt19937 dice(seed);
    for (Layer& layer : random.network().layers) {
      if (seed % 2 == 0 || layer.op->kind == OpKind::kConstant) continue;
      if (dice() % 3 == 0) layer.precision = kTypes[dice() % 3];
      if (dice() % 8 == 0) layer.output_types = {kTypes[dice() % 3]};
    }
    BuildOptions options = level(Fusion::kFull);
    options.enabled.set(Precision::kBF16);
    const auto spec = specialize(random.network(), random.input_shapes());
    const Assignment assignment = assign_precisions(*spec, options);
    for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull}) {
      const Grouping grouping = fuse(*spec, assignment, fusion);
      expect_invariants(*spec, assignment, grouping);
      for (const Group& group : grouping.groups) {
        EXPECT_TRUE(fusion != Fusion::kNone || group.layers.size() == 1);
        EXPECT_TRUE(fusion == Fusion::kFull || (group.kind != GroupKind::kRow && group.kind != GroupKind::kAttention));
      }
      if (HasFailure()) FAIL() << "seed " << seed << ", fusion " << static_cast<int>(fusion);
    }
  }
}

Model product_chain() {
  Model model;
  model.input("x", {4, 8});
  model.node("MatMul", {"x", "w"}, {"p"}, "Product");
  model.node("Add", {"p", "b"}, {"s"}, "Bias");
  model.node("Relu", {"s"}, {"r"}, "Relu");
  model.node("Softmax", {"r"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("w", {8, 8}, std::vector<float>(64, 0.5f));
  *model.graph().add_initializer() = float_tensor("b", {8}, std::vector<float>(8, 0.25f));
  model.output("y");
  return model;
}

TEST(Fusion, LevelsJoinMoreAndMore) {
  const auto network = product_chain().load();
  // Constants are in no group.
  EXPECT_THAT(groups_of(*network, level(Fusion::kNone)), ElementsAre("Product", "Bias", "Relu", "Softmax"));
  EXPECT_THAT(groups_of(*network, level(Fusion::kPointwise)), ElementsAre("Product + Bias + Relu", "Softmax"));
  EXPECT_THAT(groups_of(*network, level(Fusion::kFull)), ElementsAre("Product + Bias + Relu", "Softmax"));
}

TEST(Fusion, ABoundaryOfPrecisionsEndsAGroup) {
  const auto network = product_chain().load();
  layer_named(*network, "Relu").precision = DataType::kFloat32;
  EXPECT_THAT(groups_of(*network, level(Fusion::kFull)), ElementsAre("Product + Bias", "Relu", "Softmax"));
}

TEST(Fusion, ANormalizationWrittenOutIsOneGroupAtFull) {
  Model model;
  model.input("x", {4, 8});
  for (const char* reduce : {"mean", "variance"}) {
    auto& node = model.node("ReduceMean", {reduce == std::string("mean") ? "x" : "square"}, {reduce}, reduce);
    add_attribute(node, "axes", onnx::AttributeProto::INTS).add_ints(-1);
    if (reduce == std::string("mean")) {
      model.node("Sub", {"x", "mean"}, {"centered"}, "Centre");
      model.node("Mul", {"centered", "centered"}, {"square"}, "Square");
    }
  }
  model.node("Sqrt", {"variance"}, {"deviation"}, "Root");
  model.node("Div", {"centered", "deviation"}, {"y"}, "Divide");
  model.output("y");
  const auto network = model.load();
  EXPECT_THAT(groups_of(*network, level(Fusion::kFull)),
              ElementsAre("mean + Centre + Square + variance + Root + Divide"));
  EXPECT_THAT(groups_of(*network, level(Fusion::kPointwise)),
              ElementsAre("mean", "Centre + Square", "variance", "Root", "Divide"));
  // Values of 300 have squares that fp16 cannot store; inside of the group nobody stores them.
  const Tensor x = Tensor::of<float>(
      {4, 8}, {-300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300,
               -300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300, -300, 300});
  EXPECT_THAT(run_first(*Engine::build(network, level(Fusion::kFull)), {x})[1], 1.0f);
  EXPECT_THAT(run_first(*Engine::build(network, level(Fusion::kNone)), {x})[1], 0.0f);
}

std::shared_ptr<Network> attention(bool watch_scores) {
  Model model;
  model.input("q", {1, 4, 8});
  model.input("k", {1, 8, 4});
  model.node("MatMul", {"q", "k"}, {"scores"}, "Scores");
  model.node("Mul", {"scores", "scale"}, {"scaled"}, "Scale");
  model.node("Softmax", {"scaled"}, {"weights"}, "Softmax");
  model.node("MatMul", {"weights", "q"}, {"y"}, "Values");
  if (watch_scores) model.node("Neg", {"scaled"}, {"z"}, "Watch");
  *model.graph().add_initializer() = float_tensor("scale", {}, {0.125f});
  model.output("y");
  if (watch_scores) model.output("z");
  return model.load();
}

TEST(Fusion, AttentionIsOneGroupUnlessItsScoresAreReadElsewhere) {
  EXPECT_THAT(groups_of(*attention(false), level(Fusion::kFull)), ElementsAre("Scores + Scale + Softmax + Values"));
  EXPECT_THAT(groups_of(*attention(false), level(Fusion::kPointwise)),
              ElementsAre("Scores + Scale", "Softmax", "Values"));
  EXPECT_THAT(groups_of(*attention(true), level(Fusion::kFull)), ::testing::Contains("Softmax"));
}

TEST(Fusion, AttentionScoresMayExceedFp16) {
  const auto network = attention(false);
  Tensor q(DataType::kFloat32, {1, 4, 8}), k(DataType::kFloat32, {1, 8, 4});
  std::fill_n(q.data<float>(), 32, 200.0f);
  std::fill_n(k.data<float>(), 32, 60.0f);  // 96000 per score
  for (float v : run_first(*Engine::build(network, level(Fusion::kFull)), {q, k})) EXPECT_EQ(v, 200.0f);
  for (float v : run_first(*Engine::build(network, level(Fusion::kNone)), {q, k})) EXPECT_TRUE(std::isnan(v));
}

/// Two layers of one group read the raw product.
TEST(Fusion, AnActivationInPlaceKeepsTheProductForItsOtherReaders) {
  Model model;
  model.input("x", {1, 1, 2, 2});
  model.node("Conv", {"x", "w"}, {"c"}, "Conv");
  model.node("Relu", {"c"}, {"r"}, "Relu");
  model.node("Add", {"c", "r"}, {"y"}, "Add");
  *model.graph().add_initializer() = float_tensor("w", {1, 1, 1, 1}, {2});
  model.output("y");
  const auto network = model.load();
  EXPECT_THAT(groups_of(*network, level(Fusion::kFull)), ElementsAre("Conv + Relu + Add"));
  EXPECT_THAT(
      run_first(*Engine::build(network, level(Fusion::kFull)), {Tensor::of<float>({1, 1, 2, 2}, {-1, 2, -3, 4})}),
      ElementsAre(-2, 8, -6, 16));
}

}  // namespace
}  // namespace ulpscope::testing
