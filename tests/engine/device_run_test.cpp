// Runs between tensors of callers, on a backend that computes in the memory of the CPU.
#include "runtime/device_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/build_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// y = (x + largest) - largest, in float32.
std::shared_ptr<Engine> engine() { return Engine::build(add_sub(), BuildOptions{}); }

std::vector<DeviceTensor> of(Tensor tensor) { return {to_device_tensor(std::move(tensor))}; }

std::string message_of(std::vector<DeviceTensor> inputs, std::vector<DeviceTensor> outputs) {
  try {
    DeviceRun(engine(), std::move(inputs), std::move(outputs), nullptr).run(nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(DeviceRun, ReadsAndWritesTheMemoryOfTheCaller) {
  Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  const std::vector<Tensor> exact = engine()->run({&x, 1});
  std::vector<Tensor> results;
  for (const Tensor& each : exact) results.emplace_back(each.type(), each.shape());
  std::vector<DeviceTensor> outputs;
  for (const Tensor& each : results) outputs.push_back(to_device_tensor(each));
  DeviceRun run(engine(), of(x), outputs, nullptr);
  run.run(nullptr);
  for (std::size_t o = 0; o < exact.size(); ++o) EXPECT_EQ(floats(results[o]), floats(exact[o]));
  // What is in the memory when it runs counts, not what was there before.
  std::ranges::fill(std::span(x.data<float>(), 4), 0.5f);
  run.run(nullptr);
  const std::vector<Tensor> again = engine()->run({&x, 1});
  for (std::size_t o = 0; o < again.size(); ++o) EXPECT_EQ(floats(results[o]), floats(again[o]));
}

TEST(DeviceRun, MakesOutputsWhereNoneAreGivenAndKeepsThem) {
  const Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  DeviceRun run(engine(), of(x), {}, nullptr);
  run.run(nullptr);
  const std::vector<Tensor> exact = engine()->run({&x, 1});
  ASSERT_EQ(run.outputs().size(), exact.size());
  EXPECT_EQ(floats(to_cpu_tensor(run.outputs().front())), floats(exact.front()));
  const void* const place = run.outputs().front().data;
  run.run(nullptr);
  EXPECT_EQ(run.outputs().front().data, place);
}

TEST(DeviceRun, SaysWhatIsWrongWithATensor) {
  const Tensor x = Tensor::of<float>({4}, {1, 2, 3, 4});
  std::vector<DeviceTensor> elsewhere = of(x);
  elsewhere.front().cuda = 3;
  EXPECT_THAT(message_of(elsewhere, {}), HasSubstr("got one on CUDA device 3"));
  EXPECT_THAT(message_of(of(Tensor(DataType::kInt64, {4})), {}), HasSubstr("int64"));
  EXPECT_THAT(message_of(of(x), of(Tensor(DataType::kFloat32, {5}))), HasSubstr("expected the shape"));
  EXPECT_THAT(message_of(of(x), of(x)), HasSubstr("shares nothing"));
}

}  // namespace
}  // namespace ulpscope::testing
