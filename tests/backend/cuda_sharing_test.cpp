// What plans of one network have in common on a GPU: constants by their names, activations of earlier runs.
#include <gtest/gtest.h>

#include <random>

#include "backend/lowered_networks.h"
#include "engine/random_network.h"

namespace ulpscope::cuda::fake {
namespace {

using A = Net::Attribute;

TEST(CudaSharing, PlacesOfOtherShapesHaveOtherNames) {
  Net net("resized by 1.5");
  const auto x = net.input("x", {1, 2, 4, 6});
  net.output(net.add("Resize", {x, "", net.weight(Tensor::of<float>({4}, {1, 1, 1.5F, 1.5F}))},
                     {A("mode", "nearest"), A("coordinate_transformation_mode", "asymmetric")}));
  net.network().tensor(net.network().inputs[0]).shape = Shape{-1, 2, 4, 6};
  const Network& network = net.finish();
  FakeDevice device;  // Throws when one name is given to different elements.
  WeightCache weights;
  for (const std::int64_t batch : {1, 2}) {
    const auto spec = specialize(network, {{batch, 2, 4, 6}});
    const Assignment assignment = assign_precisions(*spec, options_of({}, Fusion::kFull));
    const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, Fusion::kFull));
    const IdMap<LayerId, GraphFunction> subgraphs(network.layers.size());
    EXPECT_NO_THROW(lower(*spec, schedule, weights, subgraphs, device)) << batch;
  }
}

TEST(CudaSharing, RunsThatShareActivations) {
  const std::uint32_t start = sweeps::seed();
  Comparison all;
  all.share_activations();
  std::vector<std::unique_ptr<testing::RandomNetwork>> networks;
  for (int i = 0; i < sweeps::count(6); ++i) {
    const auto seed = start + static_cast<std::uint32_t>(i);
    auto& made = *networks.emplace_back(std::make_unique<testing::RandomNetwork>(seed));
    const auto cache = std::make_shared<WeightCache>();
    std::mt19937 dice(seed);
    const auto add = [&](const char* what, const BuildOptions& options) {
      all.add(fmt::format("seed {}, {}", seed, what), made.network(), made.inputs(), options, Match::kRoundings, {},
              cache);
    };
    const Fusion fusion = static_cast<Fusion>(i % 3);
    BuildOptions options = options_of({Precision::kFP16}, fusion);
    options.constraints = ConstraintMode::kPrefer;
    add("fp16", options);
    add("fp16 again", options);
    for (int trial = 0; trial < 5; ++trial) {
      auto& layers = made.network().layers;
      Layer& layer = layers[LayerId(static_cast<int>(dice() % layers.size()))];
      layer.precision = layer.precision ? std::nullopt : std::optional(DataType::kFloat32);
      add("another layer in fp32", options);
    }
    add("mixed types", mixed(made.network(), seed, fusion));
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
  EXPECT_GT(all.skipped_steps(), 0u);
}

}  // namespace
}  // namespace ulpscope::cuda::fake
