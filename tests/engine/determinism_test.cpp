// The same bits for every number of threads, every run and every plan.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/build_helpers.h"

namespace ulpscope::testing {
namespace {

std::vector<float> noise(std::size_t count, std::uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

Tensor noise_tensor(const Shape& shape, std::uint32_t seed) {
  const auto values = noise(static_cast<std::size_t>(num_elements(shape)), seed);
  return Tensor::of<float>(shape, std::span<const float>(values));
}

/// Three convolutions with normalization, a residual, pooling and a classifier; large enough for several threads.
Model images() {
  Model model;
  model.input("x", {2, 8, 40, 40});
  std::string last = "x";
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i);
    auto& conv = model.node("Conv", {last, "w" + n}, {"c" + n}, "Conv" + n);
    for (auto* pads = &add_attribute(conv, "pads", onnx::AttributeProto::INTS); pads->ints_size() < 4;)
      pads->add_ints(1);
    model.node("BatchNormalization", {"c" + n, "gamma", "beta", "mean", "variance"}, {"b" + n}, "Norm" + n);
    model.node("Relu", {"b" + n}, {"r" + n}, "Relu" + n);
    *model.graph().add_initializer() =
        float_tensor("w" + n, {8, 8, 3, 3}, noise(576, static_cast<std::uint32_t>(i), 0.1f));
    last = "r" + n;
  }
  for (const char* name : {"gamma", "beta", "mean"})
    *model.graph().add_initializer() = float_tensor(name, {8}, noise(8, 9));
  *model.graph().add_initializer() = float_tensor("variance", {8}, {1, 2, 1, 2, 1, 2, 1, 2});
  model.node("Add", {"r0", last}, {"sum"}, "Residual");
  model.node("GlobalAveragePool", {"sum"}, {"pooled"}, "Pool");
  model.node("Flatten", {"pooled"}, {"flat"}, "Flatten");
  model.node("Gemm", {"flat", "fc"}, {"y"}, "Classify");
  *model.graph().add_initializer() = float_tensor("fc", {8, 10}, noise(80, 10));
  model.output("y");
  model.output("sum");
  return model;
}

/// Attention with normalization and a feed-forward part, over 96 tokens.
Model tokens() {
  Model model;
  model.input("x", {2, 96, 64});
  model.node("LayerNormalization", {"x", "scale", "shift"}, {"n"}, "Norm");
  for (const char* name : {"q", "k", "v"}) {
    model.node("MatMul", {"n", std::string("w_") + name}, {name}, std::string("Project_") + name);
    *model.graph().add_initializer() =
        float_tensor(std::string("w_") + name, {64, 64}, noise(4096, static_cast<std::uint32_t>(name[0]), 0.1f));
  }
  auto& turn = model.node("Transpose", {"k"}, {"kt"}, "Turn");
  auto& perm = add_attribute(turn, "perm", onnx::AttributeProto::INTS);
  for (int d : {0, 2, 1}) perm.add_ints(d);
  model.node("MatMul", {"q", "kt"}, {"scores"}, "Scores");
  model.node("Softmax", {"scores"}, {"weights"}, "Softmax");
  model.node("MatMul", {"weights", "v"}, {"mixed"}, "Mix");
  model.node("Add", {"x", "mixed"}, {"sum"}, "Residual");
  model.node("MatMul", {"sum", "up"}, {"wide"}, "Up");
  model.node("Add", {"wide", "bias"}, {"biased"}, "Bias");
  model.node("Sigmoid", {"biased"}, {"gate"}, "Gate");
  model.node("Mul", {"biased", "gate"}, {"silu"}, "Silu");
  model.node("MatMul", {"silu", "down"}, {"y"}, "Down");
  *model.graph().add_initializer() = float_tensor("scale", {64}, noise(64, 20));
  *model.graph().add_initializer() = float_tensor("shift", {64}, noise(64, 21));
  *model.graph().add_initializer() = float_tensor("up", {64, 256}, noise(64 * 256, 22, 0.1f));
  *model.graph().add_initializer() = float_tensor("bias", {256}, noise(256, 23));
  *model.graph().add_initializer() = float_tensor("down", {256, 64}, noise(64 * 256, 24, 0.1f));
  model.output("y");
  return model;
}

void expect_same_bits(const Model& model, const std::vector<Tensor>& inputs) {
  for (const bool lowest : {false, true})
    for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull}) {
      std::vector<Tensor> reference;
      for (int threads : {1, 2, 4}) {
        BuildOptions options = fp16_options(ConstraintMode::kNone, fusion, lowest);
        options.enabled.set(Precision::kFP16, lowest);
        options.threads = threads;
        const auto engine = Engine::build(model.load(), options);
        for (int run = 0; run < 3; ++run) {
          const auto outputs = engine->run(inputs);
          if (reference.empty()) reference = outputs;
          for (std::size_t o = 0; o < outputs.size(); ++o)
            EXPECT_EQ(std::memcmp(outputs[o].raw(), reference[o].raw(), outputs[o].bytes()), 0)
                << threads << " threads, run " << run << ", fusion " << static_cast<int>(fusion)
                << (lowest ? ", fp16" : ", fp32");
        }
      }
    }
}

TEST(Determinism, OfANetworkOfConvolutions) { expect_same_bits(images(), {noise_tensor({2, 8, 40, 40}, 1)}); }

TEST(Determinism, OfATransformer) { expect_same_bits(tokens(), {noise_tensor({2, 96, 64}, 2)}); }

/// A long sum per element and few rows: where kernel libraries like to split sums over threads.
TEST(Determinism, LongProductsDoNotDependOnThreads) {
  Model model;
  model.input("x", {64, 1536});
  model.node("MatMul", {"x", "w"}, {"y"}, "Product");
  *model.graph().add_initializer() = float_tensor("w", {1536, 384}, noise(1536 * 384, 21));
  model.output("y");
  const auto network = model.load();
  const Tensor x = noise_tensor({64, 1536}, 22);
  std::vector<float> first;
  for (int threads : {1, 2, 3, 4, 8}) {
    BuildOptions options = tested_options();
    options.threads = threads;
    const std::vector<float> y = run_first(*Engine::build(network, options), {x});
    if (first.empty()) first = y;
    EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << threads << " threads";
  }
}

/// One sequence, whose steps follow one another: columns of R are shared out, in both halves of a GRU that resets the
/// state first.
TEST(Determinism, RecurrentLayersOfOneSequenceDoNotDependOnThreads) {
  constexpr std::int64_t kHidden = 300, kSteps = 5;
  for (const auto& [op, gates] : {std::pair("GRU", 3), std::pair("LSTM", 4)}) {
    Model model;
    model.input("x", {kSteps, 1, 16});
    add_attribute(model.node(op, {"x", "w", "r"}, {"y"}, op), "hidden_size", onnx::AttributeProto::INT).set_i(kHidden);
    for (const auto& [name, columns] : {std::pair("w", std::int64_t{16}), std::pair("r", kHidden)}) {
      const Shape shape{1, gates * kHidden, columns};
      *model.graph().add_initializer() =
          float_tensor(name, shape, noise(static_cast<std::size_t>(num_elements(shape)), 3, 0.1f));
    }
    model.output("y");
    const auto network = model.load();
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 8}) {
      BuildOptions options = tested_options();
      options.threads = threads;
      const auto y = run_first(*Engine::build(network, options), {noise_tensor({kSteps, 1, 16}, 4)});
      if (first.empty()) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
          << op << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
