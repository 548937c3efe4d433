#include "runtime/default_target.h"

#include <gtest/gtest.h>

#include "engine/options.h"
#include "engine/target.h"

namespace ulpscope {
namespace {

TEST(DefaultTarget, IsTheGpuThatADeviceNames) {
  for (const auto& [device, target] : {std::pair{"NVIDIA H200", "h200"},
                                       {"NVIDIA H100 80GB HBM3", "h100"},
                                       {"NVIDIA A100-SXM4-40GB", "a100"},
                                       {"NVIDIA L40S", "l40s"},
                                       {"NVIDIA L4", "l4"},
                                       {"Tesla T4", "t4"},
                                       {"NVIDIA GeForce RTX 4090", "rtx4090"},
                                       {"NVIDIA B200", "b200"},
                                       {"Orin", "orin"},
                                       {"Jetson AGX Orin", "orin"}})
    EXPECT_EQ(target_of_device(device), target) << device;
}

TEST(DefaultTarget, IsNoneOfAnotherGpu) {
  for (const char* device :
       {"", "NVIDIA", "NVIDIA L40", "NVIDIA GeForce RTX 4090D", "NVIDIA RTX 6000 Ada", "Quadro T400"})
    EXPECT_EQ(target_of_device(device), "") << device;
}

TEST(DefaultTarget, IsOneThatExistsWhereNoGpuComputes) {
  for (const char* backend : {"cpu", "plain"}) EXPECT_EQ(default_target(backend), kDefaultTarget);
  EXPECT_GT(find_target(std::string(kDefaultTarget)).bandwidth_gb_per_s, 0);
}

}  // namespace
}  // namespace ulpscope
