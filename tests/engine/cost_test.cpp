#include "engine/cost.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/specialization.h"
#include "onnx/model_builder.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using testing::Dims;
using testing::float_tensor;
using testing::Model;

/// A random acyclic network of up to 12 nodes with shared values, outputs and links.
CostProblem random_problem(std::mt19937& random, const std::vector<Precision>& choices) {
  std::uniform_real_distribution<double> cost(0.0, 10.0);
  CostProblem problem;
  const int n = 2 + static_cast<int>(random() % 11);
  for (int i = 0; i < n; ++i) {
    CostProblem::Node node;
    node.layer = LayerId(i);
    node.choices = choices;
    if (random() % 5 == 0) node.choices = {choices[random() % choices.size()]};
    for (std::size_t c = 0; c < node.choices.size(); ++c) node.cost.push_back(cost(random));
    problem.nodes.push_back(node);
  }
  for (int producer = -1; producer < n; ++producer) {
    CostProblem::Value value;
    value.producer = producer;
    value.pass_us = cost(random) / 3;
    value.output = producer >= 0 && random() % 4 == 0;
    for (int c = producer + 1; c < n; ++c)
      if (random() % 3 == 0) {
        value.consumers.push_back(c);
        if (producer >= 0 && random() % 2 == 0) problem.links.push_back({producer, c, cost(random) / 4});
      }
    problem.values.push_back(value);
  }
  return problem;
}

double best_by_enumeration(const CostProblem& problem) {
  std::vector<int> choice(problem.nodes.size(), 0);
  double best = 1e300;
  for (;;) {
    best = std::min(best, problem.energy(choice));
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == static_cast<int>(problem.nodes[i].choices.size())) choice[i++] = 0;
    if (i == choice.size()) return best;
  }
}

TEST(Cost, TheMinimumOverTwoTypesIsExact) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const CostProblem problem = random_problem(random, {Precision::kFP16, Precision::kFP32});
    EXPECT_NEAR(problem.energy(minimize(problem)), best_by_enumeration(problem), 1e-6) << "trial " << trial;
  }
}

TEST(Cost, ExpansionComesCloseToTheMinimumOverThreeTypes) {
  std::mt19937 random(13);
  double found = 0, best = 0;
  for (int trial = 0; trial < 60; ++trial) {
    CostProblem problem = random_problem(random, {Precision::kFP16, Precision::kBF16, Precision::kFP32});
    if (problem.nodes.size() > 9) continue;
    const double energy = problem.energy(minimize(problem)), minimum = best_by_enumeration(problem);
    EXPECT_GE(energy, minimum - 1e-9);
    // Boykov, Veksler and Zabih prove a factor of two for metric terms.
    EXPECT_LE(energy, 2 * minimum + 1e-9);
    found += energy;
    best += minimum;
  }
  EXPECT_LE(found, 1.05 * best);
}

TEST(Cost, RecurrentLayersMultiplyTheirWeightsInEveryStep) {
  Model model;
  model.input("x", {5, 2, 4});  // Steps, sequences, values.
  *model.graph().add_initializer() = float_tensor("w", {1, 24, 4}, std::vector<float>(96, 0.5f));
  *model.graph().add_initializer() = float_tensor("r", {1, 24, 6}, std::vector<float>(144, 0.5f));
  model.node("LSTM", {"x", "w", "r"}, {"", "h"}, "lstm");
  testing::add_attribute(*model.graph().mutable_node(0), "hidden_size", onnx::AttributeProto::INT).set_i(6);
  model.output("h");
  const auto network = model.load();
  const auto spec = specialize(*network, {{5, 2, 4}});
  const LayerWork work = work_of(*spec, network->layer(network->find_layer("lstm")));
  EXPECT_EQ(work.multiply_adds, 5 * 2 * (96 + 144));
  EXPECT_EQ(work.operations, 2 * work.multiply_adds);
}

TEST(Target, KnowsTheNamedOnesAndRefusesOthers) {
  for (const std::string name : {"h200", "a100", "l4", "t4", "orin"})
    EXPECT_GT(find_target(name).bandwidth_gb_per_s, 0) << name;
  EXPECT_FALSE(find_target("t4").has(Precision::kBF16));
  try {
    find_target("h2000");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(e.what()).find("h200"), std::string::npos);
  }
}

}  // namespace
}  // namespace ulpscope
