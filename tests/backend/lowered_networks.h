// Small networks, lowered for the fake device and run there; the plain backend says what they mean.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/fake_device.h"
#include "backend/seeds.h"
#include "engine/assign.h"
#include "engine/fusion.h"
#include "graph/inference.h"
#include "graph/network_builder.h"

namespace ulpscope::cuda::fake {

/// The lowest precision that there is: that is enabled, or float32.
inline BuildOptions options_of(PrecisionSet enabled, Fusion fusion) {
  BuildOptions options;
  options.enabled = enabled;
  options.assume_lowest = true;
  options.fusion = fusion;
  options.threads = 1;
  return options;
}

/// Random precisions and output types as constraints.
inline BuildOptions mixed(Network& network, std::uint32_t seed, Fusion fusion) {
  std::mt19937 dice(seed);
  constexpr DataType kTypes[]{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
  for (Layer& layer : network.layers) {
    if (layer.op->kind == OpKind::kConstant) continue;
    if (layer.op->precision == PrecisionRule::kCompute) layer.precision = kTypes[dice() % 3];
  }
  BuildOptions options = options_of({Precision::kFP16}, fusion);
  options.enabled.set(Precision::kBF16);
  options.constraints = ConstraintMode::kObey;
  return options;
}

/// A network as it is written down in a test. Values are drawn from its own generator.
class Net {
 public:
  explicit Net(std::string name, std::uint32_t seed = 1) : random_(seed) { builder_.network.name = std::move(name); }

  std::string input(const std::string& name, const Shape& shape, float low = -2, float high = 2) {
    return input(name, values(shape, low, high));
  }
  std::string input(const std::string& name, Tensor value) {
    builder_.input(name, value.type());
    builder_.network.tensor(builder_.tensor(name)).shape = value.shape();
    inputs_.push_back(std::move(value));
    return name;
  }
  std::string weight(const Shape& shape, float low = -1, float high = 1) { return weight(values(shape, low, high)); }
  std::string weight(Tensor value) {
    const std::string name = fmt::format("w{}", count_++);
    builder_.weight(name, std::move(value));
    return name;
  }
  std::string scalar(float value) { return weight(Tensor::of<float>({}, {value})); }
  std::string integers(std::vector<std::int64_t> values) {
    return weight(
        Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())}, std::span<const std::int64_t>(values)));
  }

  struct Attribute {
    Attribute(const char* n, std::int64_t v) : set([n, v](Layer& l) { l.attributes.set(n, v); }) {}
    Attribute(const char* n, int v) : Attribute(n, static_cast<std::int64_t>(v)) {}
    Attribute(const char* n, double v) : set([n, v](Layer& l) { l.attributes.set(n, static_cast<float>(v)); }) {}
    Attribute(const char* n, const char* v) : set([n, v](Layer& l) { l.attributes.set(n, std::string(v)); }) {}
    Attribute(const char* n, std::vector<std::int64_t> v) : set([n, v](Layer& l) { l.attributes.set(n, v); }) {}
    Attribute(const char* n, std::vector<std::string> v) : set([n, v](Layer& l) { l.attributes.set(n, v); }) {}
    std::function<void(Layer&)> set;
  };
  /// One output, whose name comes back.
  std::string add(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<Attribute>& attributes = {}, int opset = 17) {
    const std::string name = fmt::format("{}{}", op, count_++);
    Layer& layer = builder_.layer(op, inputs, {name + "_out"}, name, opset);
    for (const Attribute& attribute : attributes) attribute.set(layer);
    return name + "_out";
  }
  /// Several outputs.
  std::vector<std::string> add_many(const std::string& op, const std::vector<std::string>& inputs, std::size_t outputs,
                                    const std::vector<Attribute>& attributes = {}, int opset = 17) {
    return add_wanted(op, inputs, std::vector<bool>(outputs, true), attributes, opset);
  }
  /// Those of its outputs; the others are absent, and their names empty.
  std::vector<std::string> add_wanted(const std::string& op, const std::vector<std::string>& inputs,
                                      const std::vector<bool>& wanted, const std::vector<Attribute>& attributes = {},
                                      int opset = 17) {
    const std::string name = fmt::format("{}{}", op, count_++);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < wanted.size(); ++i) names.push_back(wanted[i] ? fmt::format("{}_out{}", name, i) : "");
    Layer& layer = builder_.layer(op, inputs, names, name, opset);
    for (const Attribute& attribute : attributes) attribute.set(layer);
    return names;
  }
  void output(const std::string& name) { builder_.output(name); }

  Network& network() { return builder_.network; }
  /// Ready to be built.
  Network& finish() {
    infer_types(builder_.network);
    builder_.network.check();
    return builder_.network;
  }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  Tensor values(const Shape& shape, float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    Tensor result(DataType::kFloat32, shape);
    for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = uniform(random_);
    return result;
  }

 private:
  std::mt19937 random_;
  testing::NetworkBuilder builder_;
  std::vector<Tensor> inputs_;
  int count_ = 0;
};

/// Four products of one tensor "x" [8, 48]: one may compute the first two; the third is scaled, the fourth has more
/// dimensions.
inline void add_projections(Net& n) {
  const auto x = n.input("x", {8, 48});
  n.output(n.add("Add", {n.add("MatMul", {x, n.weight({48, 32})}), n.weight({32})}));
  n.output(n.add("MatMul", {x, n.weight({48, 16})}));
  n.output(n.add("Gemm", {x, n.weight({48, 16}), n.weight({16})}, {Net::Attribute("alpha", 0.5)}));
  n.output(n.add("MatMul", {x, n.weight({1, 1, 48, 16})}));
}

/// What the network is lowered to for these inputs.
inline Steps lowered(const Network& network, const std::vector<Shape>& shapes, const BuildOptions& options,
                     FakeDevice& device, Ends ends = Ends::kHost) {
  const auto spec = specialize(network, shapes);
  const IdMap<LayerId, GraphFunction> subgraphs(network.layers.size());
  const Assignment assignment = assign_precisions(*spec, options);
  WeightCache weights;
  const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));
  return lower(*spec, schedule, weights, subgraphs, device, ends);
}

/// How many steps of a kind the network is lowered to for these inputs.
template <typename Kind>
std::int64_t count_steps(const Network& network, const std::vector<Shape>& shapes, const BuildOptions& options,
                         FakeDevice& device) {
  return std::ranges::count_if(lowered(network, shapes, options, device).steps,
                               [](const Step& step) { return std::holds_alternative<Kind>(step.work); });
}

/// How close the outputs have to be.
enum class Match : std::uint8_t {
  kBits,       ///< Equal.
  kRoundings,  ///< But for the last bits of float32 sums, and for what these move to the other side of a tie.
};

/// Lowers many networks, compiles all their kernels at once, then runs and compares.
class Comparison {
 public:
  /// `network` outlives this. A cache is shared by what is added for one network, so that its keys have to tell
  /// everything apart.
  void add(const std::string& name, const Network& network, const std::vector<Tensor>& inputs,
           const BuildOptions& options, Match match, const Rules& rules = {},
           std::shared_ptr<WeightCache> cache = nullptr);
  /// Each network is compared with itself: run once by itself, and once with a store that it shares with the others of
  /// its cache.
  void share_activations() { shares_ = true; }
  /// What is added from here on reads inputs and writes outputs where the caller has them.
  void stay_on_device() { ends_ = Ends::kDevice; }
  /// Of the steps of runs with a store, those that were left out.
  std::size_t skipped_steps() const { return skipped_steps_; }
  /// Runs all; failures are the test's. False: there is no compiler.
  bool run();
  /// Of what was added last.
  const Schedule& schedule() const { return *last_; }
  /// How many layers of it run on the host.
  std::int64_t host_steps() const;
  /// How many of its steps bring operands into another type.
  std::int64_t converting_steps() const;

 private:
  struct Case;
  void compare(Case& c);
  void compare_sharing(Case& c);
  KernelBank bank_;
  std::vector<std::shared_ptr<Case>> cases_;
  std::shared_ptr<Case> failed_;  ///< Kept for schedule().
  const Schedule* last_ = nullptr;
  int skipped_ = 0;
  /// Plans with a cache in common find constants that others left, by their names.
  std::map<const WeightCache*, std::shared_ptr<FakeDevice>> devices_;
  bool shares_ = false;
  Ends ends_ = Ends::kHost;
  std::map<const WeightCache*, ActivationStore> stores_;
  std::size_t skipped_steps_ = 0;
};

/// Networks of one test.
class Nets {
 public:
  Net& net(const std::string& name) {
    made_.push_back(std::make_unique<Net>(name, static_cast<std::uint32_t>(made_.size()) + 1));
    return *made_.back();
  }
  std::vector<std::unique_ptr<Net>>& all() { return made_; }

 private:
  std::vector<std::unique_ptr<Net>> made_;
};

/// Every network in several types and fusion levels. Skips the test where there is no compiler.
void expect_same(std::vector<std::unique_ptr<Net>>& nets, const Rules& rules = {});

}  // namespace ulpscope::cuda::fake
