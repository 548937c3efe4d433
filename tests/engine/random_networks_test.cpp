// The engine against the reference kernels, on random networks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/assign.h"
#include "engine/build_helpers.h"
#include "engine/emulator.h"
#include "engine/random_network.h"
#include "runtime/engine.h"

namespace ulpscope::testing {
namespace {

constexpr std::uint32_t kNetworks = 150;

double largest(const Tensor& tensor) {
  double result = 0;
  for (float v : tensor.values<float>()) result = std::max(result, std::fabs(static_cast<double>(v)));
  return result;
}

/// The plain backend rounds after every instruction, so other sums meet a tie than in the reference kernels: one in 150
/// networks each time.
bool on_plain() { return tested_options().backend == "plain"; }
/// Tensor cores add in another order, and truncate: where sums meet a tie, roundings part.
bool on_gpu() { return tested_options().backend == "cuda"; }

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].shape() != b[i].shape() || std::memcmp(a[i].raw(), b[i].raw(), a[i].bytes()) != 0) return false;
  return true;
}

std::string describe(const Network& network, LayerId id) { return network.layer(id).name + " of " + network.name; }

BuildOptions lowest(PrecisionSet enabled, Fusion fusion) {
  BuildOptions options = tested_options();
  options.enabled |= enabled;
  options.assume_lowest = true;
  options.fusion = fusion;
  options.threads = 1;
  return options;
}

/// Other values of the same shapes.
std::vector<Tensor> reversed(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> result;
  for (const Tensor& input : inputs) {
    result.push_back(input.clone());
    std::reverse(result.back().data<float>(), result.back().data<float>() + result.back().size());
  }
  return result;
}

/// An engine that has run on other values before: a step that reads what this run has not written finds those.
TEST(RandomNetworks, Fp32AgreesWithTheReferenceAtEveryFusionLevel) {
  for (std::uint32_t seed = 0; seed < kNetworks; ++seed) {
    RandomNetwork random(seed);
    const auto expected = evaluate(random.network(), random.inputs());
    for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull}) {
      const auto engine = Engine::build(random.shared(), lowest({}, fusion));
      engine->run(reversed(random.inputs()));
      const auto outputs = engine->run(random.inputs());
      ASSERT_EQ(outputs.size(), expected.size());
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        ASSERT_EQ(outputs[o].shape(), expected[o].shape()) << "seed " << seed;
        const double tolerance = 1e-5 * std::max(1.0, largest(expected[o]));
        for (std::int64_t i = 0; i < outputs[o].size(); ++i)
          ASSERT_NEAR(outputs[o].data<float>()[i], expected[o].data<float>()[i], tolerance)
              << "seed " << seed << ", fusion " << static_cast<int>(fusion) << ", output "
              << random.network().tensor(random.network().outputs[o]).name << "[" << i << "]";
      }
    }
  }
}

/// By how many deviations the mean of a row is away from 0, the most of all rows: what a mean that is off by one unit
/// in the last place becomes when such a row is normalized. 0 for other layers.
double distance_of_means(const Layer& layer, const Tensor& x) {
  if (layer.op->name != "LayerNormalization") return 0;
  double most = 0;
  const std::int64_t length = x.shape().back();
  for (std::int64_t begin = 0; begin < x.size(); begin += length) {
    const auto row = x.values<float>().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(length);
    double squares = 0;
    for (const float v : row) squares += (v - mean) * (v - mean);
    if (squares > 0) most = std::max(most, std::abs(mean) / std::sqrt(squares / static_cast<double>(length)));
  }
  return most;
}

/// Every layer, given the values that the engine itself has for its inputs, stores what the rules say, to one unit in
/// the last place of its type: sums in another order may fall on the other side of a tie.
void expect_layers_follow_the_rules(RandomNetwork& random, const BuildOptions& options, std::uint32_t seed) {
  Network& network = random.network();
  network.outputs.clear();
  for (const Layer& layer : network.layers)
    if (layer.op->kind != OpKind::kConstant)
      for (TensorId output : layer.outputs) network.outputs.push_back(output);
  const auto shared = random.shared();
  const auto spec = specialize(*shared, random.input_shapes());
  const Assignment assignment = assign_precisions(*spec, options);
  const Grouping grouping = fuse(*spec, assignment, Fusion::kNone);
  const auto outputs = Engine::build(shared, options)->run(random.inputs());
  IdMap<TensorId, Tensor> values(network.tensors.size());
  for (std::size_t i = 0; i < network.inputs.size(); ++i) values[network.inputs[i]] = random.inputs()[i];
  for (std::size_t o = 0; o < outputs.size(); ++o) values[network.outputs[o]] = outputs[o];
  for (LayerId id : network.layers.ids()) {
    if (spec->folded[id]) continue;
    const TensorId output = network.layers[id].outputs[0];
    const Tensor expected = Emulator(*spec, assignment, grouping).layer_output(id, values);
    const Tensor& actual = values[output];
    const DataType storage = assignment.storage[output];
    double slack = (on_plain() || on_gpu() ? 4e-6 : 2e-6) * std::max(1.0, largest(expected));
    const double of_mean = on_gpu() ? 2.4e-7 : 1.2e-7;
    slack += of_mean * distance_of_means(network.layers[id], values[network.layers[id].inputs[0]]);
    ASSERT_EQ(actual.shape(), expected.shape());
    std::int64_t differ = 0;
    for (std::int64_t i = 0; i < actual.size(); ++i) {
      const double a = actual.data<float>()[i], e = expected.data<float>()[i];
      ASSERT_EQ(a, round_value(static_cast<float>(a), rounding_of(storage)))
          << describe(network, id) << ", seed " << seed;
      ASSERT_NEAR(a, e, spacing(storage, e) + slack) << describe(network, id) << "[" << i << "], seed " << seed;
      differ += a != e;
    }
    const bool moves = network.layers[id].op->precision == PrecisionRule::kMovement;
    const std::int64_t allowed = moves ? 0 : storage != DataType::kFloat32 ? 1 + actual.size() / 20 : actual.size();
    EXPECT_LE(differ, allowed) << describe(network, id) << ", seed " << seed;
  }
}

TEST(RandomNetworks, LayersRoundWhatTheyReadAndStore) {
  for (const Precision each : {Precision::kFP16, Precision::kBF16, Precision::kTF32})
    for (std::uint32_t seed = 0; seed < kNetworks; ++seed) {
      RandomNetwork random(seed);
      expect_layers_follow_the_rules(random, lowest({each}, Fusion::kNone), seed);
      if (HasFatalFailure()) return;
    }
}

/// Random precisions and output types as constraints.
void constrain(Network& network, std::uint32_t seed) {
  std::mt19937 dice(seed);
  constexpr DataType kTypes[]{DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
  for (Layer& layer : network.layers) {
    if (layer.op->kind == OpKind::kConstant) continue;
    if (layer.op->precision == PrecisionRule::kCompute) layer.precision = kTypes[dice() % 3];
    if (dice() % 5 == 0) layer.output_types = {kTypes[dice() % 3]};
  }
}

BuildOptions obeying(Fusion fusion) {
  BuildOptions options = lowest({Precision::kFP16}, fusion);
  options.enabled.set(Precision::kBF16);
  options.constraints = ConstraintMode::kObey;
  return options;
}

TEST(RandomNetworks, MixedPrecisionsFollowTheRulesToo) {
  for (std::uint32_t seed = 0; seed < kNetworks; ++seed) {
    RandomNetwork random(seed);
    constrain(random.network(), seed);
    expect_layers_follow_the_rules(random, obeying(Fusion::kNone), seed);
    if (HasFatalFailure()) return;
  }
}

TEST(RandomNetworks, WithoutFusionWatchingALayerChangesNothing) {
  for (std::uint32_t seed = 0; seed < kNetworks / 3; ++seed) {
    RandomNetwork random(seed), watched(seed);
    constrain(random.network(), seed);
    constrain(watched.network(), seed);
    const std::vector<TensorId> outputs = random.network().outputs;
    for (const Layer& layer : watched.network().layers)
      if (layer.op->kind != OpKind::kConstant && !watched.network().is_output(layer.outputs[0]))
        watched.network().outputs.push_back(layer.outputs[0]);
    const auto plain = Engine::build(random.shared(), obeying(Fusion::kNone))->run(random.inputs());
    auto all = Engine::build(watched.shared(), obeying(Fusion::kNone))->run(random.inputs());
    all.resize(plain.size());
    EXPECT_TRUE(same_bits(plain, all)) << "seed " << seed;
  }
}

/// Whole networks, fused: most agree to the last bit, and none is further from the rules than the rules are from fp32.
TEST(RandomNetworks, FusedGroupsRoundAtTheirEdgesOnly) {
  for (const bool mixed : {false, true})
    for (Fusion fusion : {Fusion::kPointwise, Fusion::kFull}) {
      std::uint32_t equal = 0;
      for (std::uint32_t seed = 0; seed < kNetworks; ++seed) {
        RandomNetwork random(seed);
        if (mixed) constrain(random.network(), seed);
        const BuildOptions options = mixed ? obeying(fusion) : lowest({Precision::kFP16}, fusion);
        const auto shared = random.shared();
        const auto spec = specialize(*shared, random.input_shapes());
        const Assignment assignment = assign_precisions(*spec, options);
        const Grouping grouping = fuse(*spec, assignment, fusion);
        const auto expected = Emulator(*spec, assignment, grouping).run(random.inputs());
        const auto exact = evaluate(*shared, random.inputs());
        const auto actual = Engine::build(shared, options)->run(random.inputs());
        double distance = 0, rounding = 0;
        bool fp32 = false;
        for (std::size_t o = 0; o < actual.size(); ++o) {
          const double scale = std::max(1e-3, largest(exact[o]));
          fp32 |= assignment.storage[shared->outputs[o]] == DataType::kFloat32;
          for (std::int64_t i = 0; i < actual[o].size(); ++i) {
            const double a = actual[o].data<float>()[i], e = expected[o].data<float>()[i],
                         x = exact[o].data<float>()[i];
            ASSERT_TRUE(std::isfinite(a)) << "seed " << seed;
            distance = std::max(distance, std::fabs(a - e) / scale);
            rounding = std::max(rounding, std::fabs(e - x) / scale);
          }
        }
        EXPECT_LE(distance, (on_gpu()     ? 1.5
                             : on_plain() ? 1.0
                                          : 0.75) *
                                    rounding +
                                1e-5)
            << "seed " << seed << ", fusion " << static_cast<int>(fusion) << (mixed ? ", mixed" : "");
        equal += distance < (fp32 ? 1e-5 : 1e-7);
      }
      EXPECT_GE(equal, kNetworks * (on_gpu() ? 6 : 9) / 10)
          << "fusion " << static_cast<int>(fusion) << (mixed ? ", mixed" : "");
    }
}

TEST(RandomNetworks, ThreadsAndRunsChangeNoBit) {
  for (std::uint32_t seed = 0; seed < kNetworks / 3; ++seed) {
    RandomNetwork random(seed);
    for (Fusion fusion : {Fusion::kNone, Fusion::kPointwise, Fusion::kFull}) {
      BuildOptions options = lowest({Precision::kFP16}, fusion);
      const auto engine = Engine::build(random.shared(), options);
      const auto first = engine->run(random.inputs());
      EXPECT_TRUE(same_bits(first, engine->run(random.inputs()))) << "seed " << seed;
      options.threads = 3;
      EXPECT_TRUE(same_bits(first, Engine::build(random.shared(), options)->run(random.inputs()))) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
