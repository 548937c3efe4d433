// Searches whose samples other servers run, here in this process: all that is decided is as without them.
#include "precision/sample_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <map>

#include "core/temporary_folder.h"
#include "engine/build_helpers.h"
#include "precision/criterion_options.h"
#include "precision/sample_messages.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Three servers in turn, whatever was where before; each task goes to a second one as well, which has to agree.
class ServersInTurn : public WorkQueue {
 public:
  void start(const std::filesystem::path& network, const Tensor& setup, std::size_t,
             const std::function<void()>&) override {
    for (int i = 0; i < 3; ++i) servers_.push_back(std::make_unique<SampleServer>(network, setup, 1));
  }
  std::vector<Tensor> run(std::span<const WorkItem> items, const std::function<void()>& meanwhile) override {
    std::vector<Tensor> results;
    for (const WorkItem& item : items) {
      if (meanwhile) meanwhile();
      results.push_back(servers_[next_++ % 3]->run(item.task));
      const Tensor again = servers_[next_ % 3]->run(item.task);
      EXPECT_TRUE(same_bytes(results.back(), again));
    }
    return results;
  }
  void expect(std::span<const WorkItem> items) override { expected_ += items.size(); }
  std::size_t expected() const { return expected_; }

 private:
  static bool same_bytes(const Tensor& a, const Tensor& b) {
    return std::ranges::equal(a.values<std::uint8_t>(), b.values<std::uint8_t>());
  }
  std::vector<std::unique_ptr<SampleServer>> servers_;
  std::size_t next_ = 0, expected_ = 0;
};

/// NaN, too.
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

void expect_same(const Judgement& a, const Judgement& b) {
  EXPECT_EQ(bits(a.used), bits(b.used));
  EXPECT_EQ(bits(a.value), bits(b.value));
  EXPECT_EQ(a.worst_output, b.worst_output);
  EXPECT_EQ(a.worst_sample, b.worst_sample);
  EXPECT_EQ(a.problem, b.problem);
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].output, b.outputs[i].output);
    EXPECT_EQ(bits(a.outputs[i].used), bits(b.outputs[i].used));
    EXPECT_EQ(bits(a.outputs[i].value), bits(b.outputs[i].value));
    EXPECT_EQ(a.outputs[i].sample, b.outputs[i].sample);
  }
}

/// Once here, once by servers; `options` says the criterion.
Answer expect_same_search(SearchData data, const SearchTask& task, const CriterionOptions& options) {
  ScriptHost host{ScriptHost::Callbacks{}};
  const std::vector<std::string> outputs{"y"};
  const auto criterion = make_criterion(options, host, outputs);
  Journal local, remote;
  const Answer expected = search_precisions(data, *criterion, task, local);
  const ulpscope::TemporaryFolder folder(std::filesystem::temp_directory_path() / "ulpscope-servers-");
  const SampleSetup setup = make_sample_setup(data, task, options, *criterion, folder.path() / "network.plan");
  EXPECT_TRUE(setup.judges);
  auto queue = std::make_shared<ServersInTurn>();
  queue->start(folder.path() / "network.plan", setup.bytes, data.samples.size() + data.held_out.size(), {});
  data.workers = queue;
  data.judged_there = true;
  const Answer answer = search_precisions(data, *criterion, task, remote);
  EXPECT_GT(queue->expected(), 0u);
  EXPECT_EQ(answer.message, expected.message);
  EXPECT_EQ(kept(answer), kept(expected));
  EXPECT_EQ(answer.joined_samples, expected.joined_samples);
  EXPECT_EQ(answer.evaluations, expected.evaluations);
  EXPECT_EQ(answer.repairs.size(), expected.repairs.size());
  EXPECT_EQ(remote.trials().size(), local.trials().size());
  for (std::size_t t = 0; t < std::min(remote.trials().size(), local.trials().size()); ++t) {
    const Trial &a = remote.trials()[t], &b = local.trials()[t];
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.raised, b.raised);
    EXPECT_EQ(a.samples_passed, b.samples_passed);
    EXPECT_EQ(a.sample_used, b.sample_used);
    expect_same(a.judgement, b.judgement);
  }
  return answer;
}

/// x @ a, + 3000, - 3000, @ b: the middle loses digits in fp16.
SearchData uneven(float big) {
  Model model;
  model.input("x", {8, 8});
  model.node("MatMul", {"x", "a"}, {"first"}, "First");
  model.node("Add", {"first", "big"}, {"sum"}, "Add");
  model.node("Sub", {"sum", "big"}, {"difference"}, "Sub");
  model.node("MatMul", {"difference", "a"}, {"y"}, "Last");
  std::vector<float> a(64);
  for (std::size_t i = 0; i < 64; ++i) a[i] = static_cast<float>((i * 37 % 64) - 31.5) / 64;
  *model.graph().add_initializer() = float_tensor("a", {8, 8}, a);
  *model.graph().add_initializer() = float_tensor("big", {1}, {big});
  model.output("y");
  return data_for(model.load(), "x", {8, 8}, -1, 1);
}

CriterionOptions rel_l2(double threshold) {
  CriterionOptions options;
  options.metric = "rel-l2";
  options.threshold = threshold;
  return options;
}

TEST(SampleServer, ASearchIsTheSameWhoeverRunsItsSamples) {
  for (const Objective objective : {Objective::kSmallest, Objective::kFastest}) {
    SearchTask task = fp16_search();
    task.objective = objective;
    task.shrink = objective == Objective::kSmallest;
    const Answer answer = expect_same_search(uneven(3000), task, rel_l2(2e-3));
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  }
}

TEST(SampleServer, RepairsOfTheSearchAreMadeThereAsWell) {
  // Clamped: 0 times what is infinite in fp16 is NaN.
  Model model;
  model.input("x", {8, 8});
  model.node("Greater", {"x", "half"}, {"greater"}, "Greater");
  add_attribute(model.node("Cast", {"greater"}, {"hidden"}, "Hidden"), "to", onnx::AttributeProto::INT)
      .set_i(onnx::TensorProto::FLOAT);
  model.node("Mul", {"hidden", "lowest"}, {"mask"}, "Lowest");
  model.node("Add", {"x", "mask"}, {"masked"}, "Mask");
  model.node("Softmax", {"masked"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("half", {}, {0.5f});
  *model.graph().add_initializer() = float_tensor("lowest", {}, {-3.4e38f});
  model.output("y");
  SearchTask task = fp16_search();
  task.repair = true;
  const Answer answer = expect_same_search(data_for(model.load(), "x", {8, 8}, -1, 1), task, rel_l2(1e-2));
  ASSERT_FALSE(answer.repairs.empty());
  EXPECT_EQ(kind_of(answer.repairs.front()), "clamp");
}

TEST(SampleServer, SamplesThatJoinKeepTheirNumbersThere) {
  const SearchData data = squares({1, 2, 1}, {1, 300, 2, 1});
  EXPECT_EQ(expect_same_search(data, fp16_search(), rel_l2(1e-2)).joined_samples, 1);
}

TEST(SampleServer, GoldenResultsOfElsewhereCount) {
  SearchData data = uneven(3000);
  Trials trials(data.network, fp16_search().build, data.samples);
  data.golden = trials.run(trials.full_precision());
  data.golden[1][0].tensor.data<float>()[0] += 1e-3f;
  expect_same_search(data, fp16_search(), rel_l2(2e-3));
}

TEST(SampleServer, ATaskOfAnotherSearchIsAnError) {
  const SearchData data = uneven(3000);
  ScriptHost host{ScriptHost::Callbacks{}};
  const auto criterion = make_criterion(rel_l2(1e-2), host, std::vector<std::string>{"y"});
  const ulpscope::TemporaryFolder folder(std::filesystem::temp_directory_path() / "ulpscope-servers-");
  const auto file = folder.path() / "network.plan";
  const SampleSetup setup = make_sample_setup(data, fp16_search(), rel_l2(1e-2), *criterion, file);
  SampleServer server(file, setup.bytes, 1);
  const Value task = Value::Map{{"do", "outputs"},
                                {"network", to_bytes(Value::Array{})},
                                {"assignment", value_of(Assignment{})},
                                {"sample", 0},
                                {"keep", false}};
  EXPECT_THROW(throw_error_in(from_bytes(server.run(to_bytes(task)))), Error);
  // And the file of another network is refused, not used.
  make_sample_setup(uneven(2000), fp16_search(), rel_l2(1e-2), *criterion, file);
  EXPECT_THROW(SampleServer(file, setup.bytes, 1), Error);
}

TEST(SampleMessages, ComeBackAsTheyWere) {
  Judgement judgement{kInfinite, 0.1, "y", 3, {{"x", 1e-300, -0.0, 2}, {"y", kInfinite, 0.1, 3}}, "why"};
  expect_same(judgement_from(from_bytes(to_bytes(value_of(judgement)))), judgement);
  const SampleEffects effects{{0.1, 1e-320, kInfinite}, {0, 1, 0}, {1, 0, 0}};
  const SampleEffects back = effects_from(from_bytes(to_bytes(value_of(effects))));
  EXPECT_EQ(back.mean_squares, effects.mean_squares);
  EXPECT_EQ(back.overflows, effects.overflows);
  EXPECT_EQ(back.incomplete, effects.incomplete);
  for (const std::int64_t bytes : {0, 4, 8, 64, 1000})
    EXPECT_THROW(from_bytes(Tensor::of<std::uint8_t>({bytes}, std::vector<std::uint8_t>(bytes, 0xff))), Error);
}

TEST(CombineJudgements, IsTheJudgementOfAll) {
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 1e-2);
  std::vector<TensorMap> golden, candidate;
  std::vector<Judgement> each;
  for (std::uint32_t s = 0; s < 4; ++s) {
    golden.push_back({{"a", values_in({9}, 1, 2, s)}, {"b", values_in({5}, 1, 2, 10 + s)}});
    candidate.push_back({{"a", values_in({9}, 1, 2, 20 + s)}, {"b", values_in({5}, 1, 2, 30 + s)}});
  }
  for (int turn = 0; turn < 3; ++turn) {
    if (turn > 0) candidate[turn][1].tensor.data<float>()[2] = static_cast<float>(kInfinite);
    each.clear();
    for (std::size_t s = 0; s < 4; ++s) each.push_back(criterion->judge({&golden[s], 1}, {&candidate[s], 1}));
    expect_same(combine_judgements(each), criterion->judge(golden, candidate));
  }
}

}  // namespace
}  // namespace ulpscope::testing
