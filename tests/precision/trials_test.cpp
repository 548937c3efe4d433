// Trials: outputs under assignments, and what they refuse.
#include "precision/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/build_helpers.h"
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
  EXPECT_EQ(trials.evaluations(), 0);
  ASSERT_EQ(golden.size(), 2u);
  EXPECT_EQ(golden[1][0].name, "y");
  EXPECT_THAT(floats(golden[1][0].tensor), ::testing::Each(2.0f));
  LayerTypes requested(trials.network().layers.size());
  const auto low = trials.run(trials.assign(requested));
  EXPECT_THAT(floats(low[0][0].tensor), ::testing::Each(0.0f));
  for (LayerId l : requested.ids())
    if (trials.network().layers[l].name == "Add" || trials.network().layers[l].name == "Sub")
      requested[l] = DataType::kFloat32;
  const auto kept = trials.run(trials.assign(requested));
  EXPECT_THAT(floats(kept[0][0].tensor), ::testing::Each(1.0f));
}

TEST(Trials, MayBeEndedBeforeEverySample) {
  Trials trials(add_sub(), lowest_fp16(), std::vector<TensorMap>{sample({1, 1, 1, 1}), sample({2, 2, 2, 2})});
  int calls = 0;
  const auto end_before_the_second = [&] {
    if (++calls == 2) throw std::runtime_error("enough");
  };
  EXPECT_THROW(trials.run(trials.full_precision(), 0, 2, false, end_before_the_second), std::runtime_error);
  EXPECT_EQ(calls, 2);
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
