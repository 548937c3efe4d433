// Weights on a device under a limit of bytes.
#include "backend/cuda/weight_budget.h"

#include <gtest/gtest.h>

#include "backend/lowered_networks.h"
#include "engine/fusion.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda::fake {
namespace {

std::shared_ptr<const void> prepared(WeightCache& cache, const std::string& key, std::size_t bytes, int& made) {
  return cache.get_object(key, [&] {
    ++made;
    return PreparedObject{std::make_shared<int>(0), bytes, true};
  });
}

TEST(DeviceWeights, GiveWayWhereNoPlanUsesThem) {
  WeightCache cache;
  cache.set_limits({WeightCache::Limits::kNone, WeightCache::Limits::kNone, 100});
  int made = 0;
  auto a = prepared(cache, "a", 40, made);
  prepared(cache, "b", 40, made);
  EXPECT_EQ(cache.device_bytes(), 80u);
  prepared(cache, "c", 40, made);  // Takes the place of "b", which nobody holds.
  EXPECT_EQ(cache.device_bytes(), 80u);
  prepared(cache, "a", 40, made);
  prepared(cache, "c", 40, made);
  EXPECT_EQ(made, 3);
  prepared(cache, "b", 40, made);
  EXPECT_EQ(made, 4);
  cache.make_device_room(60);
  EXPECT_EQ(cache.device_bytes(), 40u);
  cache.drop_unused_on_device();
  EXPECT_EQ(cache.device_bytes(), 40u) << "a is in use";
  a.reset();
  cache.drop_unused_on_device();
  EXPECT_EQ(cache.device_bytes(), 0u);
}

/// Neither kind of memory makes room for the other.
TEST(DeviceWeights, AreNoneOfTheProcess) {
  WeightCache cache;
  cache.set_limits({100, WeightCache::Limits::kNone, 1000});
  int made = 0;
  prepared(cache, "on the device", 500, made);
  cache.get_object("here", [] { return PreparedObject{std::make_shared<int>(0), 90}; });
  EXPECT_EQ(cache.device_bytes(), 500u);
  cache.get_object("here, too", [] { return PreparedObject{std::make_shared<int>(0), 90}; });
  prepared(cache, "on the device", 500, made);
  EXPECT_EQ(made, 1);
  cache.set_limits({100, WeightCache::Limits::kNone, 400});
  EXPECT_EQ(cache.device_bytes(), 0u);
}

TEST(DeviceWeights, OfOnePlanHaveToFit) {
  Net n("three products");
  auto x = n.input("x", {4, 16});
  for (int i = 0; i < 3; ++i) x = n.add("Relu", {n.add("MatMul", {x, n.weight({16, 16})})});
  n.output(x);
  const Network& network = n.finish();
  const auto spec = specialize(network, {{4, 16}});
  const IdMap<LayerId, GraphFunction> subgraphs(network.layers.size());
  const BuildOptions options = options_of({}, Fusion::kFull);
  const Assignment assignment = assign_precisions(*spec, options);
  const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));
  constexpr std::size_t kAll = std::size_t{3} * 16 * 16 * sizeof(float);
  for (const std::size_t limit : {kAll, kAll - 1, std::size_t{1}}) {
    FakeDevice device;
    WeightBudget budget(device, limit);
    WeightCache weights;
    lower(*spec, schedule, weights, subgraphs, budget);
    EXPECT_EQ(budget.bytes(), kAll) << "what is needed, whatever the limit is";
    EXPECT_LE(device.constant_bytes(), limit) << "nothing beyond the limit is made";
    if (limit == kAll) {
      EXPECT_NO_THROW(budget.check());
      continue;
    }
    try {
      budget.check();
      ADD_FAILURE() << "a plan that does not fit is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("take 3.0 KiB"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("--memory-limit"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ulpscope::cuda::fake
