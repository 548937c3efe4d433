// Plans that share activations: the same bits as without, and what is not computed again.
#include "backend/activation_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "engine/build_helpers.h"
#include "engine/random_network.h"
#include "runtime/executable.h"

namespace ulpscope::testing {
namespace {

ActivationKey key(std::uint64_t n) { return {n, 0}; }

TEST(ActivationStore, TheLongestUnusedGivesWay) {
  ActivationStore store(40);
  const auto put = [&](std::uint64_t n, std::int64_t elements) {
    const Tensor tensor(DataType::kFloat32, {elements});
    store.put(key(n), tensor, tensor.bytes());
  };
  put(1, 4);
  put(2, 4);
  EXPECT_NE(store.find<Tensor>(key(1)), nullptr);
  EXPECT_EQ(store.find<int>(key(1)), nullptr);
  put(3, 4);
  EXPECT_EQ(store.find<Tensor>(key(2)), nullptr);
  EXPECT_NE(store.find<Tensor>(key(1)), nullptr);
  EXPECT_EQ(store.bytes(), 32u);
  put(4, 100);
  EXPECT_EQ(store.find<Tensor>(key(4)), nullptr);
  store.set_byte_limit(16);
  EXPECT_EQ(store.bytes(), 16u);
}

TEST(ActivationStore, SharedActivationsGiveTheBitsOfARunWithoutThem) {
  // A GPU compiles kernels for each of the plans.
  const std::uint32_t seeds = fp16_options(ConstraintMode::kPrefer, Fusion::kFull, true).backend == "cuda" ? 5 : 40;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    RandomNetwork random(seed);
    for (const auto& [fusion, int8] :
         {std::pair(Fusion::kNone, false), {Fusion::kFull, false}, {Fusion::kNone, true}, {Fusion::kFull, true}}) {
      BuildOptions options = fp16_options(ConstraintMode::kPrefer, fusion, true);
      options.enabled.set(Precision::kINT8, int8);
      if (int8)
        for (const TensorInfo& tensor : random.network().tensors) options.scales[tensor.name] = 0.03f;
      const auto spec = specialize(random.network(), random.input_shapes());
      Executable executable(random.network(), assign_precisions(*spec, options), options, spec);
      ActivationStore store(std::size_t{1} << 24), small(4000);
      std::mt19937 pick(seed);
      for (int trial = 0; trial < 12; ++trial) {
        Requests requested(random.network().layers.size());
        for (LayerId l : requested.ids())
          if (random.network().layers[l].op->precision == PrecisionRule::kCompute && pick() % 3 == 0)
            requested[l] = int8 && pick() % 2 == 0 ? DataType::kFloat16 : DataType::kFloat32;
        const Assignment assignment = assign_precisions(*spec, options, &requested);
        const auto plan = executable.plan_for(random.input_shapes(), assignment, fusion);
        const auto expected = plan->run(random.inputs());
        for (ActivationStore* shared : {&store, &small}) {
          const auto actual = plan->run(random.inputs(), shared, trial % 3 != 2);
          ASSERT_EQ(actual.size(), expected.size());
          for (std::size_t o = 0; o < actual.size(); ++o)
            ASSERT_EQ(std::memcmp(actual[o].raw(), expected[o].raw(), expected[o].bytes()), 0)
                << "seed " << seed << ", trial " << trial << ", output " << o;
        }
        // Nothing of the store was written over: the plan still gives the same by itself.
        const auto again = plan->run(random.inputs());
        for (std::size_t o = 0; o < again.size(); ++o)
          ASSERT_EQ(std::memcmp(again[o].raw(), expected[o].raw(), expected[o].bytes()), 0);
      }
    }
  }
}

TEST(ActivationStore, OnlyWhatAnAssignmentChangesIsComputedAgain) {
  Model model;
  model.input("x", {4});
  model.node("Mul", {"x", "x"}, {"a"}, "First");
  model.node("Exp", {"a"}, {"b"}, "Second");
  model.node("Neg", {"b"}, {"y"}, "Third");
  model.output("y");
  const auto network = model.load();
  BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
  const auto spec = specialize(*network, {{4}});
  Executable executable(*network, assign_precisions(*spec, options), options, spec);
  ActivationStore store(1 << 20);
  const std::vector<Tensor> x{Tensor::of<float>({4}, {0.1f, 0.2f, 0.3f, 0.4f})};
  const auto run = [&](const char* raised) {
    Requests requested(network->layers.size());
    if (raised != nullptr) requested[network->find_layer(raised)] = DataType::kFloat32;
    const std::size_t before = store.bytes();
    executable.plan_for({{4}}, assign_precisions(*spec, options, &requested), Fusion::kNone)->run(x, &store);
    return (store.bytes() - before) / (4 * sizeof(float));
  };
  EXPECT_EQ(run(nullptr), 3u);
  EXPECT_EQ(run(nullptr), 0u);
  EXPECT_EQ(run("Third"), 1u);
  EXPECT_EQ(run("Second"), 2u);
  EXPECT_EQ(run("First"), 3u);
}

/// The integers of a QuantizeLinear are not stored where DequantizeLinear reads what they were made of.
TEST(ActivationStore, WhatIsDequantizedDependsOnWhatWasQuantized) {
  constexpr int kSize = 256;
  Model model;
  model.input("x", {kSize});
  *model.graph().add_initializer() = float_tensor("scale", {}, {0.0023f});
  model.node("Exp", {"x"}, {"a"}, "exp");
  model.node("QuantizeLinear", {"a", "scale"}, {"q"}, "quantize");
  model.node("DequantizeLinear", {"q", "scale"}, {"y"}, "dequantize");
  model.output("y");
  const auto network = model.load();
  const BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
  const auto spec = specialize(*network, {{kSize}});
  Executable executable(*network, assign_precisions(*spec, options), options, spec);
  ActivationStore store(1 << 20);
  std::vector<float> values;
  for (int i = 0; i < kSize; ++i) values.push_back(-0.8f - 0.003f * static_cast<float>(i));
  const std::vector<Tensor> x{Tensor::of<float>({kSize}, std::span<const float>(values))};
  const auto run = [&](bool raised, ActivationStore* shared) {
    Requests requested(network->layers.size());
    if (raised) requested[network->find_layer("exp")] = DataType::kFloat32;
    const auto outputs =
        executable.plan_for({{kSize}}, assign_precisions(*spec, options, &requested), Fusion::kNone)->run(x, shared);
    return std::vector<float>(outputs[0].values<float>().begin(), outputs[0].values<float>().end());
  };
  ASSERT_NE(run(true, nullptr), run(false, nullptr));
  EXPECT_EQ(run(false, &store), run(false, nullptr));
  EXPECT_EQ(run(true, &store), run(true, nullptr));
}

/// 40 blocks: 4 values become 32, and 4 again.
TEST(ActivationStore, KeepsWhatIsAliveWhereTheFewestBytesAre) {
  constexpr int kBlocks = 40;
  Model model;
  model.input("x0", {4});
  *model.graph().add_initializer() = float_tensor("c", {8, 4}, std::vector<float>(32, 0.25f));
  for (int i = 0; i < kBlocks; ++i) {
    const std::string n = std::to_string(i);
    model.node("Mul", {"x" + n, "c"}, {"wide" + n}, "widen " + n);
    model.node("Exp", {"wide" + n}, {"exp" + n}, "exp " + n);
    auto& reduce = model.node("ReduceMean", {"exp" + n}, {"x" + std::to_string(i + 1)}, "narrow " + n);
    add_attribute(reduce, "axes", onnx::AttributeProto::INTS).add_ints(0);
    add_attribute(reduce, "keepdims", onnx::AttributeProto::INT).set_i(0);
  }
  model.output("x" + std::to_string(kBlocks));
  const auto network = model.load();
  const BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
  const auto spec = specialize(*network, {{4}});
  Executable executable(*network, assign_precisions(*spec, options), options, spec);
  ActivationStore store(1 << 20);
  const std::vector<Tensor> x{Tensor::of<float>({4}, {0.1f, 0.2f, 0.3f, 0.4f})};
  const auto run = [&](int raised, ActivationStore* shared) {
    Requests requested(network->layers.size());
    requested[network->find_layer("exp " + std::to_string(raised))] = DataType::kFloat32;
    const auto outputs =
        executable.plan_for({{4}}, assign_precisions(*spec, options, &requested), Fusion::kNone)->run(x, shared);
    return std::vector<float>(outputs[0].values<float>().begin(), outputs[0].values<float>().end());
  };
  EXPECT_EQ(run(kBlocks - 1, &store), run(kBlocks - 1, nullptr));
  // Of 3 * 40 steps, 32; next to none of them in the middle of a block.
  const std::size_t narrow = 4 * sizeof(float);
  EXPECT_LE(store.bytes(), 34 * narrow);
  EXPECT_GE(store.bytes(), 30 * narrow);
  for (const int raised : {kBlocks - 2, kBlocks / 2, 0}) EXPECT_EQ(run(raised, &store), run(raised, nullptr));
}

/// What gives way in a store that is too small is what the next run would begin with: nothing would be left of use.
TEST(ActivationStore, ASmallOneHasValuesThatLieFartherApart) {
  constexpr int kLayers = 40;
  constexpr std::size_t kBytes = 1024 * sizeof(float);
  Model model;
  model.input("x0", {1024});
  for (int i = 0; i < kLayers; ++i)
    model.node("Tanh", {"x" + std::to_string(i)}, {"x" + std::to_string(i + 1)}, "layer " + std::to_string(i));
  model.output("x" + std::to_string(kLayers));
  const auto network = model.load();
  BuildOptions options = fp16_options(ConstraintMode::kObey, Fusion::kNone, true);
  options.backend = "cpu";
  const auto spec = specialize(*network, {{1024}});
  Executable executable(*network, assign_precisions(*spec, options), options, spec);
  const std::vector<Tensor> x{Tensor::of<float>({1024}, std::vector<float>(1024, 0.7f))};
  const auto run = [&](const char* raised, ActivationStore& store) {
    Requests requested(network->layers.size());
    if (raised != nullptr) requested[network->find_layer(raised)] = DataType::kFloat32;
    executable.plan_for({{1024}}, assign_precisions(*spec, options, &requested), Fusion::kNone)->run(x, &store);
  };
  ActivationStore large(100 * kBytes), small(10 * kBytes), tiny(kBytes);
  for (ActivationStore* store : {&large, &small, &tiny}) run(nullptr, *store);
  EXPECT_GE(large.bytes(), 30 * kBytes);
  EXPECT_GE(small.bytes(), 3 * kBytes);
  EXPECT_LE(small.bytes(), 5 * kBytes);
  EXPECT_EQ(tiny.bytes(), 0u);
  // The first of them are there after another run, and serve the next.
  run("layer 39", small);
  EXPECT_LE(small.bytes(), 6 * kBytes);
}

}  // namespace
}  // namespace ulpscope::testing
