// Peak memory of trials, measured in processes of their own.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "precision/predictor.h"
#include "precision/search_helpers.h"
#include "precision/search_space.h"
#include "precision/trials.h"

namespace ulpscope::testing {
namespace {

constexpr std::int64_t kWidth = 1536;
constexpr int kProducts = 8;
constexpr std::size_t kWeights = std::size_t{kProducts} * kWidth * kWidth * sizeof(float);  // 75 MB

/// VmHWM of this process, in bytes.
double peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) * 1024;
  return -1;
}

/// Products with transposed constants, which are folded.
std::shared_ptr<Network> transposed_products() {
  Model model;
  model.input("x", {-1, kWidth});
  std::string value = "x";
  for (int i = 0; i < kProducts; ++i) {
    const std::string name = std::to_string(i);
    onnx::TensorProto weight = float_tensor("w" + name, {kWidth, kWidth}, {});
    const Tensor values = values_in({kWidth, kWidth}, -0.02, 0.02, static_cast<std::uint32_t>(i + 1));
    weight.set_raw_data(std::string(static_cast<const char*>(values.raw()), values.bytes()));
    *model.graph().add_initializer() = std::move(weight);
    model.node("Transpose", {"w" + name}, {"t" + name});
    model.node("MatMul", {value, "t" + name}, {"m" + name});
    value = "m" + name;
  }
  model.output(value);
  return model.load();
}

/// What trials in fp32, fp16 and fp32 again add to the peak of a fresh process, as a multiple of the weights; negative
/// when they failed. One thread: those of OpenMP do not live on in a fork.
double trials_add(const std::shared_ptr<const Network>& network, int lengths, std::size_t memory_limit) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    double added = -1;
    try {
      std::ofstream("/proc/self/clear_refs") << "5";  // The peak begins here.
      const double before = peak_memory();
      std::vector<TensorMap> samples;
      for (int s = 0; s < 16; ++s) samples.push_back({{"x", values_in({16 - s % lengths, kWidth}, -1, 1, 3)}});
      Trials trials(network, fp16_options(ConstraintMode::kObey, Fusion::kNone, true), samples);
      trials.set_memory_limit(memory_limit);
      const Assignment low = trials.assign(Requests(network->layers.size()));
      trials.run(trials.full_precision(), false);
      trials.run(low, false);
      trials.run(trials.full_precision(), false);
      added = (peak_memory() - before) / static_cast<double>(kWeights);
    } catch (...) {
    }
    const bool written = ::write(ends[1], &added, sizeof added) == sizeof added;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  double added = -1;
  if (::read(ends[0], &added, sizeof added) != sizeof added) added = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return added;
}

class TrialsMemory : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "sanitizers have memory of their own";
#endif
  }
};

TEST_F(TrialsMemory, DoesNotGrowWithTheLengths) {
  const auto network = transposed_products();
  const double one = trials_add(network, 1, 0), many = trials_add(network, 16, 0);
  EXPECT_GT(one, 0);
  EXPECT_LE(many, 1.1 * one);
}

TEST_F(TrialsMemory, KeepsToItsLimit) {
  const auto network = transposed_products();
  // Without one: what is packed of the constants in two precisions. How close to a limit the peak comes depends on the
  // processor (what oneDNN packs) and on malloc (freed blocks that it keeps): 0.99 for 1.75.
  EXPECT_GT(trials_add(network, 1, 0), 2.0);
  const double limit = 1.75;
  const double added = trials_add(network, 1, static_cast<std::size_t>(limit * kWeights));
  EXPECT_GT(added, 0);
  EXPECT_LE(added, limit);
}

/// Products and functions, some of which overflow.
std::shared_ptr<Network> overflowing_chain() {
  Model model;
  model.input("x", {8, 32});
  std::string value = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    const float scale = i == 3 ? 2e5f : i == 4 ? 5e-6f : 1.0f;
    const Tensor w = values_in({32, 32}, -0.4 * scale, 0.4 * scale, static_cast<std::uint32_t>(i + 1));
    *model.graph().add_initializer() = float_tensor("w" + n, {32, 32}, floats(w));
    model.node("MatMul", {value, "w" + n}, {"p" + n}, "Product" + n);
    if (i != 3) model.node("Tanh", {"p" + n}, {"t" + n}, "Tanh" + n);
    value = (i == 3 ? "p" : "t") + n;
  }
  model.output(value);
  return model.load();
}

/// What a limit makes it do in parts, or again, it does to the same bits.
TEST(SearchMemory, AnAnswerDoesNotDependOnTheLimit) {
  const SearchData data = data_for(overflowing_chain(), "x", {8, 32}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 2e-4);
  SearchTask options = fp16_search();
  const Answer expected = run(data, *criterion, options);
  ASSERT_FALSE(expected.kept.empty());
  for (const std::size_t limit : {std::size_t{1}, std::size_t{20000}, std::size_t{1} << 20}) {
    SCOPED_TRACE(limit);
    options.memory_limit = limit;
    const Answer answer = run(data, *criterion, options);
    EXPECT_EQ(kept(answer), kept(expected));
    ASSERT_EQ(answer.trials.size(), expected.trials.size());
    for (std::size_t t = 0; t < answer.trials.size(); ++t) {
      EXPECT_EQ(answer.trials[t].raised.marks(), expected.trials[t].raised.marks());
      EXPECT_EQ(answer.trials[t].judgement.used, expected.trials[t].judgement.used);
    }
    for (std::size_t i = 0; i < answer.kept.size(); ++i)
      EXPECT_EQ(answer.kept[i].reason.text, expected.kept[i].reason.text);
  }
}

TEST(SearchMemory, EffectsDoNotDependOnTheLimit) {
  const SearchData data = data_for(overflowing_chain(), "x", {8, 32}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 2e-4);
  SearchTask options = fp16_search();
  const auto effects = [&](std::size_t limit) {
    options.memory_limit = limit;
    SearchSpace space(data.network, options, data.samples);
    Trials& trials = space.trials();
    const auto golden = trials.run(trials.full_precision());
    return predict_effects(trials, space.low(), space.candidates(), *criterion, golden);
  };
  const std::vector<LayerEffect> expected = effects(0);
  for (const std::size_t limit : {std::size_t{1}, std::size_t{20000}}) {
    const std::vector<LayerEffect> actual = effects(limit);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].effect, expected[i].effect) << "candidate " << i;
      EXPECT_EQ(actual[i].overflows, expected[i].overflows);
      EXPECT_EQ(actual[i].incomplete, expected[i].incomplete);
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
