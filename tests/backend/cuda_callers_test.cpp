// Plans that read inputs and write outputs where the caller has them on the device, on the fake one.
#include <gtest/gtest.h>

#include "backend/lowered_networks.h"
#include "backend/seeds.h"
#include "engine/random_network.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;

/// One step of a decoder with one head: keys and values of those before come in, and go out with those of this token.
void decoding_step(Net& n, DataType cache) {
  const auto x = n.input("x", {1, 1, 16});
  const auto past = [&](const char* name) {
    const auto made = n.input(name, {1, 5, 16});
    n.network().tensor(n.network().find_tensor(made)).type = cache;
    return made;
  };
  const auto all = [&](const std::string& before, const std::string& now) {
    const auto whole = n.add(
        "Concat", {before, cache == DataType::kFloat32 ? now : n.add("Cast", {now}, {A("to", 10)})}, {A("axis", 1)});
    n.output(whole);
    return cache == DataType::kFloat32 ? whole : n.add("Cast", {whole}, {A("to", 1)});
  };
  const auto keys = all(past("past_keys"), n.add("MatMul", {x, n.weight({16, 16})}));
  const auto values = all(past("past_values"), n.add("MatMul", {x, n.weight({16, 16})}));
  const auto scores = n.add("MatMul", {n.add("MatMul", {x, n.weight({16, 16})}),
                                       n.add("Transpose", {keys}, {A("perm", std::vector<std::int64_t>{0, 2, 1})})});
  n.output(n.add("MatMul", {n.add("Softmax", {scores}, {A("axis", -1)}), values}));
}

std::int64_t kernels_of(const Steps& steps) {
  return std::ranges::count_if(steps.steps,
                               [](const Step& step) { return std::holds_alternative<KernelStep>(step.work); });
}

TEST(CudaCallers, StepsOfADecoderCopyNothing) {
  for (const DataType cache : {DataType::kFloat32, DataType::kFloat16}) {
    Net net("decoding step");
    decoding_step(net, cache);
    const Network& network = net.finish();
    std::vector<Shape> shapes;
    for (const Tensor& input : net.inputs()) shapes.push_back(input.shape());
    FakeDevice device;
    const BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
    const Steps host = lowered(network, shapes, options, device),
                stays = lowered(network, shapes, options, device, Ends::kDevice);
    EXPECT_LE(kernels_of(stays), kernels_of(host)) << name_of(cache);
    for (const Step& step : stays.steps) EXPECT_TRUE(runs_on_device(step)) << name_of(cache);
    std::set<int> numbers;
    for (const Buffer& buffer : stays.buffers) {
      if (buffer.callers < 0) continue;
      EXPECT_TRUE(numbers.insert(buffer.callers).second);
      EXPECT_EQ(buffer.place.first, -1) << "a tensor of the caller has a place in the arena";
    }
    EXPECT_EQ(numbers, (std::set<int>{0, 1, 2, 3, 4, 5}));
  }
}

TEST(CudaCallers, NetworksHaveTheResultsOfTheHost) {
  std::vector<std::unique_ptr<Net>> nets;
  const auto net = [&](const char* name) -> Net& { return *nets.emplace_back(std::make_unique<Net>(name)); };
  decoding_step(net("a cache in float32"), DataType::kFloat32);
  decoding_step(net("a cache in float16"), DataType::kFloat16);
  {
    Net& n = net("outputs that are inputs, constants, each other, empty or of shapes");
    const auto x = n.input("x", {3, 4});
    const auto y = n.add("Relu", {x});
    n.output(n.add("Identity", {x}));
    n.output(n.add("Transpose", {x}));
    n.output(n.add("Reshape", {x, n.integers({2, 6})}));
    n.output(y);
    n.output(n.add("Identity", {y}));
    n.output(n.add("Slice", {y, n.integers({1}), n.integers({1}), n.integers({0})}));
    n.output(n.add("Shape", {x}));
    n.output(n.add("Identity", {n.weight({2, 3})}));
    n.output(n.add("Greater", {x, n.scalar(0)}));
    n.output(n.add("Cast", {y}, {A("to", 7)}));
    n.output(n.add("Cast", {y}, {A("to", 10)}));
    n.output(n.add("ArgMax", {x}, {A("axis", 1)}));
  }
  {
    Net& n = net("a layer of the CPU in between");
    const auto x = n.input("x", {4, 9});
    const auto best = n.add_many("TopK", {n.add("Mul", {x, x}), n.integers({3})}, 2);
    n.output(best[1]);
    n.output(n.add("Relu", {n.add("MatMul", {best[0], n.weight({3, 5})})}));
  }
  Comparison all;
  all.stay_on_device();
  for (const auto& each : nets) {
    const Network& network = each->finish();
    const auto add = [&](const char* what, const BuildOptions& options) {
      all.add(fmt::format("{} in {}", network.name, what), network, each->inputs(), options, Match::kRoundings);
    };
    add("fp32", options_of({}, Fusion::kFull));
    add("fp16", options_of({Precision::kFP16}, Fusion::kFull));
    add("bf16, unfused", options_of({Precision::kBF16}, Fusion::kNone));
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

TEST(CudaCallers, RandomNetworks) {
  const std::uint32_t start = sweeps::seed();
  Comparison all;
  all.stay_on_device();
  std::vector<std::unique_ptr<testing::RandomNetwork>> networks;
  for (int i = 0; i < sweeps::count(6); ++i) {
    const auto seed = start + static_cast<std::uint32_t>(i);
    auto& made = *networks.emplace_back(std::make_unique<testing::RandomNetwork>(seed));
    for (const bool low : {false, true})
      all.add(fmt::format("random network {} in {}", seed, low ? "fp16" : "fp32"), made.network(), made.inputs(),
              low ? options_of({Precision::kFP16}, Fusion::kFull) : options_of({}, Fusion::kFull), Match::kRoundings);
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

}  // namespace
}  // namespace ulpscope::cuda::fake
