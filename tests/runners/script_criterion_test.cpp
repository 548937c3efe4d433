#include <gmock/gmock.h>

#include "ops/registry.h"
#include "precision/criterion.h"
#include "runners/script_fixture.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor vec(std::initializer_list<float> values) {
  return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
}

class ScriptCriterionTest : public ScriptTest {
 protected:
  ScriptHost& host() {
    if (!host_) {
      ScriptHost::Callbacks callbacks;
      callbacks.ops = &op_registry();
      WorkerOptions options = ScriptTest::options();
      options.call_limit = limit_;
      host_ = std::make_unique<ScriptHost>(callbacks, options);
    }
    return *host_;
  }

  std::unique_ptr<Criterion> criterion(const std::string& body, PerName<double> thresholds = 0.5) {
    return make_script_criterion(host(), {write("metric.py", body), "metric"}, std::move(thresholds));
  }

  std::string message(const std::string& body, PerName<double> thresholds = 0.5) {
    const Error error = error_of([&] { criterion(body, std::move(thresholds))->judge(golden_, candidate_); });
    EXPECT_EQ(error.code(), ErrorCode::kScript) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("metric.py"));
    return error.what();
  }

  static std::string example(const std::string& name) {
    return ULPSCOPE_SOURCE_DIR "/tests/runners/metric_scripts/" + name;
  }

  std::unique_ptr<ScriptHost> host_;
  std::chrono::milliseconds limit_{0};
  std::vector<TensorMap> golden_ = {{{"y", vec({1, 2})}, {"z", vec({5})}}, {{"y", vec({3, 4})}, {"z", vec({6})}}};
  std::vector<TensorMap> candidate_ = {{{"y", vec({1, 2})}, {"z", vec({5.5})}},
                                       {{"y", vec({3, 4.25})}, {"z", vec({6})}}};
};

TEST_F(ScriptCriterionTest, SeesAllSamplesAsListsOfDicts) {
  const auto judge = criterion(R"(
import numpy as np

def metric(golden, candidate):
    assert isinstance(golden, list) and len(golden) == len(candidate) == 2
    assert list(golden[1]) == ["y", "z"] and golden[1]["y"].dtype == np.float32
    return np.float32(sum(float(np.abs(c[n] - g[n]).sum()) for g, c in zip(golden, candidate) for n in g))
)");
  const Judgement judgement = judge->judge(golden_, candidate_);
  EXPECT_DOUBLE_EQ(judgement.value, 0.75);
  EXPECT_DOUBLE_EQ(judgement.used, 1.5);
  EXPECT_EQ(judgement.worst_output, "");
  EXPECT_EQ(judgement.worst_sample, -1);
  EXPECT_EQ(judge->judge(golden_, golden_).used, 0);
  EXPECT_THAT(judge->description(), AllOf(HasSubstr("metric.py:metric"), HasSubstr("0.5")));
}

TEST_F(ScriptCriterionTest, ValuesPerOutputMeetThresholdsPerOutput) {
  const ScriptName script{example("per_output.py"), "metric"};
  PerName<double> thresholds;
  thresholds.set("y", 1);
  EXPECT_DOUBLE_EQ(make_script_criterion(host(), script, thresholds)->judge(golden_, candidate_).used, 0.25);
  thresholds.set("", 0.1);
  const Judgement both = make_script_criterion(host(), script, thresholds)->judge(golden_, candidate_);
  EXPECT_DOUBLE_EQ(both.used, 5);
  EXPECT_EQ(both.worst_output, "z");
  EXPECT_EQ(both.outputs.size(), 2u);
}

TEST_F(ScriptCriterionTest, AHigherValueCanBeBetter) {
  const std::vector<TensorMap> golden = {
      {{"boxes", Tensor::of<float>({2, 4}, {0, 0, 10, 10, 20, 20, 30, 30})}, {"scores", vec({0.9F, 0.8F})}},
      {{"boxes", Tensor::of<float>({2, 4}, {5, 5, 9, 9, 0, 0, 3, 3})}, {"scores", vec({0.7F, 0.6F})}}};
  std::vector<TensorMap> candidate = {
      {{"boxes", Tensor::of<float>({2, 4}, {0, 0, 10, 10.5F, 20, 20, 30, 30})}, {"scores", vec({0.9F, 0.8F})}},
      {{"boxes", Tensor::of<float>({2, 4}, {5, 5, 9, 9, 70, 70, 73, 73})}, {"scores", vec({0.7F, 0.6F})}}};
  const auto judge = make_script_criterion(host(), {example("detection_map.py"), "metric"}, 0.5);
  const Judgement judgement = judge->judge(golden, candidate);
  EXPECT_NEAR(judgement.value, 0.75, 1e-6);
  EXPECT_NEAR(judgement.used, 0.5, 1e-6) << "half of the way from golden's 1 to the threshold";
  EXPECT_EQ(judge->judge(golden, golden).used, 0);
}

TEST_F(ScriptCriterionTest, GoldenOutputsAreSentOnce) {
  // An address of golden data in the worker stays while the criterion lives, for each golden set.
  const auto judge = criterion(R"(
seen = {}

def metric(golden, candidate):
    assert not golden[0]["y"].flags.writeable
    return float(seen.setdefault(id(golden[0]["y"]), len(seen)))
)");
  const std::span<const TensorMap> half = std::span(golden_).first(1);
  EXPECT_EQ(judge->judge(golden_, candidate_).value, 0);
  EXPECT_EQ(judge->judge(golden_, golden_).value, 0);
  EXPECT_EQ(judge->judge(half, half).value, 1);
  EXPECT_EQ(judge->judge(golden_, candidate_).value, 0);
  EXPECT_EQ(judge->judge(half, half).value, 1);
}

TEST_F(ScriptCriterionTest, MistakesOfScriptsAreNamed) {
  EXPECT_THAT(message("def metric(golden, candidate):\n    return golden[0]['nope']\n"),
              AllOf(HasSubstr("raised KeyError: 'nope'"), HasSubstr("line 2")));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return float('nan')\n"),
              HasSubstr("expected a number, got NaN"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    pass\n"), HasSubstr("expected a number, got None"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return True\n"), HasSubstr("object of type bool"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return golden[0]['y']\n"),
              HasSubstr("object of type ndarray"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return 1, 2\n"), HasSubstr("tuple of (int, int)"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return {}\n"), HasSubstr("empty dict"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return {'q': 1}\n"),
              HasSubstr("expected names of outputs (y, z), got the key 'q'"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    return {'y': 'a'}\n"),
              HasSubstr("expected a number for output 'y'"));
  EXPECT_THAT(message("def metric(golden):\n    return 1\n"), HasSubstr("a function of (golden, candidate)"));
  EXPECT_THAT(message("def metric(golden, candidate):\n    golden[0]['y'][0] = 5\n    return 1\n"),
              HasSubstr("read-only"));
  EXPECT_THAT(message("import sys\ndef metric(golden, candidate):\n    sys.exit(3)\n"),
              HasSubstr("called exit with status 3"));
  EXPECT_THAT(message("def metric(g, c):\n    return 1\nmetric.higher_is_better = 'yes'\n"),
              HasSubstr("higher_is_better"));
  PerName<double> named;
  named.set("y", 1);
  EXPECT_THAT(message("def metric(golden, candidate):\n    return 1\n", named),
              HasSubstr("expected a value for output 'y', which has a threshold, got a single number"));
}

TEST_F(ScriptCriterionTest, ACrashIsAnErrorAndTheNextCallStartsAfresh) {
  const auto judge = criterion(R"(
import os

def metric(golden, candidate):
    if candidate[0]["z"][0] != 5:
        os._exit(7)
    return 0.25
)");
  EXPECT_EQ(judge->judge(golden_, golden_).used, 0.5);
  const Error error = error_of([&] { judge->judge(golden_, candidate_); });
  EXPECT_EQ(error.code(), ErrorCode::kScript);
  EXPECT_THAT(error.what(), HasSubstr("metric.py"));
  EXPECT_EQ(judge->judge(golden_, golden_).used, 0.5);
}

TEST_F(ScriptCriterionTest, AnEndlessScriptMeetsTheTimeLimit) {
  limit_ = std::chrono::milliseconds(1500);
  EXPECT_THAT(message("def metric(golden, candidate):\n    while True:\n        pass\n"),
              HasSubstr("expected a result within 1.5 s"));
}

TEST_F(ScriptCriterionTest, MissingScriptsAndFunctionsAreNotFound) {
  const auto code = [&](const ScriptName& script) {
    return error_of([&] { make_script_criterion(host(), script, 1.0)->judge(golden_, candidate_); }).code();
  };
  EXPECT_EQ(code({(folder_ / "nothing.py").string(), "metric"}), ErrorCode::kNotFound);
  EXPECT_EQ(code({write("other.py", "def score(g, c):\n    return 1\n"), "metric"}), ErrorCode::kNotFound);
}

TEST_F(ScriptCriterionTest, ScriptsNeverSeeNonFiniteCandidates) {
  const auto judge = criterion("def metric(golden, candidate):\n    raise SystemError\n");
  candidate_[1][1].tensor = vec({std::numeric_limits<float>::infinity()});
  const Judgement judgement = judge->judge(golden_, candidate_);
  EXPECT_FALSE(judgement.passed(1e9));
  EXPECT_EQ(judgement.problem, "output 'z', sample 1: 0 NaN and 1 Inf where the golden output has other values");
}

}  // namespace
}  // namespace ulpscope
