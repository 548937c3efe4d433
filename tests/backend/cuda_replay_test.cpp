// Tactics of a GPU in replay files, without one: networks lowered for the fake device, with algorithms that a library
// could name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/replay.h"
#include "backend/cuda/runtime.h"
#include "backend/lowered_networks.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kDevice = "NVIDIA H200, cuBLASLt 13.1.0, cuDNN 9.19.0";

class NamedProduct final : public MatrixLibrary::Product {
 public:
  explicit NamedProduct(std::string tactic) : tactic_(std::move(tactic)) {}
  std::size_t workspace_bytes() const override { return 0; }
  std::string tactic() const override { return tactic_; }
  void run(const MatrixProductOperands&, Address, Stream) const override {}

 private:
  const std::string tactic_;
};

class NamedConvolution final : public ConvolutionPlan {
 public:
  explicit NamedConvolution(std::string tactic) : tactic_(std::move(tactic)) {}
  std::size_t workspace_bytes() const override { return 0; }
  std::string tactic() const override { return tactic_; }
  void run(const ConvolutionOperands&, std::uint64_t) const override {}

 private:
  const std::string tactic_;
};

/// A convolution, two products of the same shapes and a softmax, in float16, lowered for a batch.
struct Lowered {
  explicit Lowered(std::int64_t batch) {
    const std::string x = net.input("x", {batch, 16, 6, 6});
    const std::string y = net.add("Relu", {net.add("Conv", {x, net.weight({16, 16, 3, 3})})});
    std::string z = net.add("Reshape", {y, net.integers({batch * 16, 16})});
    for (int i = 0; i < 2; ++i) z = net.add("Softmax", {net.add("MatMul", {z, net.weight({16, 16})})});
    net.output(z);
    const Network& network = net.finish();
    BuildOptions options;
    options.enabled.set(Precision::kFP16);
    options.assume_lowest = true;
    spec = specialize(network, {{batch, 16, 6, 6}});
    assignment = assign_precisions(*spec, options);
    schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));
    steps = lower(*spec, schedule, weights, IdMap<LayerId, GraphFunction>(network.layers.size()), device);
    int count = 0;
    for (Step& step : steps.steps) {
      if (auto* product = std::get_if<ProductStep>(&step.work))
        product->product = std::make_shared<NamedProduct>(fmt::format("{:0128x}", ++count));
      if (auto* convolution = std::get_if<ConvolveStep>(&step.work))
        convolution->plan = std::make_shared<NamedConvolution>(fmt::format("engine {} knobs 2=1,17=3", ++count));
    }
  }

  const Grouping& grouping() const { return schedule.grouping; }
  std::string json() const {
    return tactics_to_json(*spec, assignment, grouping(), "cuda", {kDevice, tactics_of(steps)});
  }
  /// What a replay says of the steps that have an algorithm, as a plan asks.
  std::vector<std::string> asked_of(Replay& replay) const {
    std::vector<std::string> found;
    for (const StepTactic& step : tactics_of(steps)) {
      if (step.computes == kGeneratedKernel) {
        replay.generated(step.layer, step.algorithm);
        continue;
      }
      const std::string* algorithm = replay.algorithm(step.layer, step.computes);
      EXPECT_TRUE(algorithm == nullptr || replay.has(step.computes)) << step.computes;
      found.push_back(algorithm == nullptr ? "" : *algorithm);
    }
    return found;
  }

  fake::Net net{"net"};
  std::shared_ptr<const Specialization> spec;
  Assignment assignment;
  Schedule schedule;
  WeightCache weights;
  fake::FakeDevice device;
  Steps steps;
};

class CudaReplay : public ::testing::Test {
 protected:
  CudaReplay() {
    set_log_sink([this](LogLevel level, std::string_view text) {
      if (level >= LogLevel::kWarning) warnings_.emplace_back(text);
    });
  }
  ~CudaReplay() override { set_log_sink({}); }

  /// The error of `call`; one line.
  template <typename Call>
  static std::string build_error(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBuild);
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }

  const Lowered two_{2};
  const Network& network_ = *two_.spec->network;
  std::vector<std::string> warnings_;
};

TEST_F(CudaReplay, EveryAlgorithmComesBackFromTheFile) {
  const TacticReplay read = tactics_from_json(two_.json());
  EXPECT_EQ(read.backend, "cuda");
  EXPECT_EQ(read.device, kDevice);
  Replay replay(&read, network_, two_.grouping(), kDevice);
  // The products compute the same, each in its group with an algorithm of its own.
  EXPECT_THAT(two_.asked_of(replay),
              ElementsAre("engine 1 knobs 2=1,17=3", fmt::format("{:0128x}", 2), fmt::format("{:0128x}", 3)));
  replay.report();
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(CudaReplay, ProductsKeepTheTilesOfTheirPrograms) {
  fake::Net net("net");
  net.output(net.add("Gelu", {net.add("MatMul", {net.input("x", {40, 64}), net.weight({64, 24})})}, {}, 20));
  const Network& network = net.finish();
  BuildOptions options;
  options.enabled.set(Precision::kFP16);
  options.assume_lowest = true;
  const auto spec = specialize(network, {{40, 64}});
  const Assignment assignment = assign_precisions(*spec, options);
  const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));
  WeightCache weights;
  fake::FakeDevice device, without({.fused = false});
  const IdMap<LayerId, GraphFunction> none(network.layers.size());
  Steps steps = lower(*spec, schedule, weights, none, device);
  const auto both = std::ranges::find_if(
      steps.steps, [](const Step& step) { return std::holds_alternative<ProductProgramStep>(step.work); });
  ASSERT_NE(both, steps.steps.end());
  auto& step = std::get<ProductProgramStep>(both->work);
  step.function = reinterpret_cast<Function>(&step);  // Chosen; nobody calls it.
  step.algorithm = "64x64 clusters of 2";
  const auto said = [&] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const StepTactic& tactic : tactics_of(steps))
      if (tactic.computes != kGeneratedKernel) all.emplace_back(tactic.computes, tactic.algorithm);
    return all;
  };
  EXPECT_THAT(said(), ::testing::ElementsAre(::testing::Pair(step.computes, "64x64 clusters of 2")));
  // One after the other, the product has its own.
  step.function = nullptr;
  step.algorithm = ProductProgramStep::kApart;
  step.product.product = std::make_shared<NamedProduct>("00ff");
  EXPECT_THAT(said(), ::testing::ElementsAre(::testing::Pair(step.computes, "apart"),
                                             ::testing::Pair(step.product.spec.text(), "00ff")));
  EXPECT_TRUE(std::ranges::none_of(lower(*spec, schedule, weights, none, without).steps, [](const Step& each) {
    return std::holds_alternative<ProductProgramStep>(each.work);
  }));
}

TEST_F(CudaReplay, GeneratedKernelsAreNamedByTheirText) {
  Lowered lowered(2);
  std::set<std::string> hashes;
  for (const Step& step : lowered.steps.steps)
    if (const auto* kernel = std::get_if<KernelStep>(&step.work)) hashes.insert(hash_of(kernel->source->source));
  ASSERT_GT(hashes.size(), 1u);
  std::set<std::string> said;
  for (const StepTactic& tactic : tactics_of(lowered.steps))
    if (tactic.computes == kGeneratedKernel) said.insert(tactic.algorithm);
  EXPECT_EQ(said, hashes);
}

TEST_F(CudaReplay, AsksForNothingWithoutAFile) {
  Replay replay(nullptr, network_, two_.grouping(), kDevice);
  EXPECT_THAT(two_.asked_of(replay), ElementsAre("", "", ""));
  EXPECT_FALSE(replay.has("product"));
  replay.report();
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(CudaReplay, OtherShapesTakeTheDefaultWithOneWarning) {
  const TacticReplay read = tactics_from_json(Lowered(3).json());
  Replay replay(&read, network_, two_.grouping(), kDevice);
  EXPECT_THAT(two_.asked_of(replay), ElementsAre("", "", ""));
  replay.report();
  EXPECT_THAT(warnings_, ElementsAre(::testing::AllOf(HasSubstr("no algorithm for 3 of 3 products and convolutions"),
                                                      HasSubstr("layer 'Conv"), HasSubstr("convolution 2x16x6x6 by"))));
}

TEST_F(CudaReplay, FilesOfBeforeSayNothingOfAlgorithms) {
  TacticReplay read = tactics_from_json(two_.json());
  read.backend = read.device = "";
  for (auto& [name, group] : read.groups) group.steps.clear();
  Replay replay(&read, network_, two_.grouping(), kDevice);
  EXPECT_THAT(two_.asked_of(replay), ElementsAre("", "", ""));
  replay.report();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no algorithm for 3 of 3")));
}

TEST_F(CudaReplay, OtherKernelsAreAWarning) {
  TacticReplay read = tactics_from_json(two_.json());
  int kernels = 0;
  for (auto& [name, group] : read.groups)
    for (TacticReplay::Step& step : group.steps)
      if (step.computes == kGeneratedKernel && ++kernels == 1) step.algorithm = hash_of("another");
  ASSERT_GT(kernels, 1);
  Replay replay(&read, network_, two_.grouping(), kDevice);
  EXPECT_THAT(two_.asked_of(replay), ::testing::Not(::testing::Contains("")));
  replay.report();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("1 of ")));
  EXPECT_THAT(warnings_[0], HasSubstr("generated kernels are not those of the tactic replay"));
}

TEST_F(CudaReplay, ThatOfAnotherDeviceIsRefused) {
  const TacticReplay read = tactics_from_json(two_.json());
  const std::string said = build_error(
      [&] { Replay(&read, network_, two_.grouping(), "NVIDIA A100-SXM4-80GB, cuBLASLt 12.9.1, cuDNN none"); });
  for (const char* part : {"[tactics]", kDevice, "NVIDIA A100-SXM4-80GB, cuBLASLt 12.9.1", "--save-tactics"})
    EXPECT_THAT(said, HasSubstr(part));
}

TEST_F(CudaReplay, RefusalsNameTheLayer) {
  const Replay replay(nullptr, network_, two_.grouping(), kDevice);
  const StepTactic step = tactics_of(two_.steps).front();
  const std::string said = build_error([&] { throw replay.refusal(step.layer, step.computes, "00fg"); });
  for (const std::string& part : {network_.layer(step.layer).name, step.computes, std::string("'00fg'"),
                                  std::string(kDevice), std::string("--save-tactics")})
    EXPECT_THAT(said, HasSubstr(part));
}

}  // namespace
}  // namespace ulpscope::cuda
