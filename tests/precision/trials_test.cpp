// Trials: outputs under assignments, and what they refuse.
#include "precision/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "engine/build_helpers.h"
#include "precision/search_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

BuildOptions lowest_fp16() { return fp16_options(ConstraintMode::kObey, Fusion::kNone, true); }

TensorMap sample(std::initializer_list<float> values) {
  return {{"x", Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values)}};
}

TEST(Trials, RunsEverySampleUnderEveryAssignment) {
  Trials trials(add_sub(), lowest_fp16(), std::vector<TensorMap>{sample({1, 1, 1, 1}), sample({2, 2, 2, 2})});
  const auto golden = trials.run(trials.full_precision());
  ASSERT_EQ(golden.size(), 2u);
  EXPECT_EQ(golden[1][0].name, "y");
  EXPECT_THAT(floats(golden[1][0].tensor), ::testing::Each(2.0f));
  Requests requested(trials.network().layers.size());
  const auto low = trials.run(trials.assign(requested));
  EXPECT_THAT(floats(low[0][0].tensor), ::testing::Each(0.0f));
  for (LayerId l : requested.ids())
    if (trials.network().layers[l].name == "Add" || trials.network().layers[l].name == "Sub")
      requested[l] = DataType::kFloat32;
  const auto kept = trials.run(trials.assign(requested));
  EXPECT_THAT(floats(kept[0][0].tensor), ::testing::Each(1.0f));
}

TEST(Trials, MayBeEndedBeforeEverySample) {
  BuildOptions options = lowest_fp16();
  options.threads = 1;
  Trials trials(add_sub(), options, std::vector<TensorMap>{sample({1, 1, 1, 1}), sample({2, 2, 2, 2})});
  int calls = 0;
  const auto end_before_the_second = [&] {
    if (++calls == 2) throw std::runtime_error("enough");
  };
  EXPECT_THROW(trials.run(trials.full_precision(), 0, 2, false, end_before_the_second), std::runtime_error);
  EXPECT_EQ(calls, 2);
}

TEST(Trials, CallsBackFromItsOwnThreadAlone) {
  for (int threads : {1, 2, 3}) {
    BuildOptions options = lowest_fp16();
    options.threads = threads;
    Trials trials(add_sub(), options, std::vector<TensorMap>(7, sample({1, 1, 1, 1})));
    const auto caller = std::this_thread::get_id();
    std::set<std::thread::id> callers;
    trials.run(trials.full_precision(), 0, 7, false, [&] { callers.insert(std::this_thread::get_id()); });
    EXPECT_EQ(callers, std::set<std::thread::id>{caller}) << threads << " threads";
    const auto end = [] { throw std::runtime_error("enough"); };
    EXPECT_THROW(trials.run(trials.full_precision(), 0, 7, false, end), std::runtime_error) << threads << " threads";
  }
}

/// Three products, of as many rows as a sample has.
std::shared_ptr<Network> products() {
  Model model;
  model.input("x", {-1, 48});
  std::string value = "x";
  for (int i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    const Tensor weight = values_in({48, 48}, -0.3, 0.3, static_cast<std::uint32_t>(i + 1));
    *model.graph().add_initializer() = float_tensor("w" + name, {48, 48}, floats(weight));
    model.node("MatMul", {value, "w" + name}, {"m" + name});
    model.node("Tanh", {"m" + name}, {"t" + name});
    value = "t" + name;
  }
  model.output(value);
  return model.load();
}

std::vector<TensorMap> samples_of_many_lengths() {
  std::vector<TensorMap> samples;
  for (std::uint32_t s = 0; s < 7; ++s)
    samples.push_back({{"x", values_in({3 + 5 * static_cast<std::int64_t>(s % 4), 48}, -2, 2, 100 + s)}});
  return samples;
}

/// The bytes of outputs under several assignments, one after the other, so that later ones find what earlier ones left.
std::vector<std::string> outputs_of(int threads, std::size_t memory_limit) {
  BuildOptions options = lowest_fp16();
  options.threads = threads;
  Trials trials(products(), options, samples_of_many_lengths());
  trials.set_memory_limit(memory_limit);
  std::vector<std::string> result;
  Requests requested(trials.network().layers.size());
  for (LayerId raised : requested.ids()) {
    for (const Assignment& assignment : {trials.full_precision(), trials.assign(requested)})
      for (const TensorMap& each : trials.run(assignment))
        result.emplace_back(static_cast<const char*>(each[0].tensor.raw()), each[0].tensor.bytes());
    requested[raised] = DataType::kFloat32;
  }
  return result;
}

TEST(Trials, GiveTheSameBitsForAnyThreadsAndMemoryLimit) {
  const auto expected = outputs_of(1, 0);
  for (int threads : {1, 2, 3, 8})
    for (std::size_t limit : {std::size_t{0}, std::size_t{1} << 20, std::size_t{1}})
      EXPECT_EQ(outputs_of(threads, limit), expected) << threads << " threads, limit " << limit;
}

TEST(Trials, SayWhatTheFirstSampleThatFailsSays) {
  Model model;
  model.input("x", {4});
  model.input("i", {1}, onnx::TensorProto::INT64);
  model.node("Gather", {"x", "i"}, {"y"});
  model.output("y");
  const std::shared_ptr<Network> network = model.load();
  std::vector<TensorMap> samples;
  for (std::int64_t index : {0, 1, 90, 2, 91, 92, 93})
    samples.push_back({{"x", Tensor::of<float>({4}, {1, 2, 3, 4})}, {"i", Tensor::of<std::int64_t>({1}, {index})}});
  for (int threads : {1, 2, 3, 8}) {
    BuildOptions options = lowest_fp16();
    options.threads = threads;
    Trials trials(network, options, samples);
    try {
      trials.run(trials.full_precision());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("90")) << threads << " threads";
    }
  }
}

TEST(Trials, RefusesSamplesThatDoNotFit) {
  const auto message = [](const TensorMap& bad) -> std::string {
    try {
      Trials(add_sub(), lowest_fp16(), std::vector<TensorMap>{bad});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({{"z", Tensor::of<float>({4}, {1, 2, 3, 4})}}), ::testing::HasSubstr("expected the input 'x'"));
  EXPECT_THAT(message(sample({1, 2})), ::testing::HasSubstr("sample 0, input 'x': expected the shape (4"));
  EXPECT_THAT(message({{"x", Tensor::of<std::int64_t>({4}, {1, 2, 3, 4})}}),
              ::testing::HasSubstr("expected elements of type float32, got int64"));
  EXPECT_THROW(Trials(add_sub(), lowest_fp16(), std::vector<TensorMap>{}), Error);
}

}  // namespace
}  // namespace ulpscope::testing
