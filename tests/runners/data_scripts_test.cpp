// Scripts that yield inputs and judge outputs.
#include <gmock/gmock.h>

#include "runners/script_fixture.h"
#include "runners/script_host.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

class DataScripts : public ScriptTest {
 protected:
  ScriptHost& host() {
    if (!host_) host_ = std::make_unique<ScriptHost>(ScriptHost::Callbacks{}, options());
    return *host_;
  }

  std::unique_ptr<ScriptHost> host_;
};

TEST_F(DataScripts, YieldOneIterationAtATime) {
  const auto loader = host().open_data_loader({write("data.py", R"(
import numpy as np

def load_data():
    for i in range(2):
        print("making", i)
        yield {"x": np.full((1, 2), i, np.float16), "n": np.int64(i)}
)"),
                                               "load_data"});
  EXPECT_EQ(out_, "");
  const auto first = loader->next();
  ASSERT_TRUE(first);
  EXPECT_EQ(out_, "making 0\n");
  EXPECT_EQ(first->at(0).name, "x");
  EXPECT_EQ(first->at(0).tensor.type(), DataType::kFloat16);
  EXPECT_EQ(first->at(0).tensor.shape(), (Shape{1, 2}));
  EXPECT_EQ(first->at(1).tensor.type(), DataType::kInt64);
  EXPECT_TRUE(loader->next());
  EXPECT_FALSE(loader->next());
}

TEST_F(DataScripts, OfAnotherKindAreNamed) {
  const auto next = [&](const std::string& body) {
    return std::string(
        error_of([&] { host().open_data_loader({write("data.py", body), "load_data"})->next(); }).what());
  };
  EXPECT_THAT(next("def load_data():\n    yield 5\n"), HasSubstr("expected a dict"));
  EXPECT_THAT(next("def load_data():\n    return 5\n"), HasSubstr("expected something to iterate over"));
  EXPECT_THAT(next("def load_data():\n    yield {'x': 'text'}\n"), HasSubstr("input 'x'"));
  EXPECT_THAT(next("def load_data():\n    1 / 0\n    yield {}\n"), HasSubstr("ZeroDivisionError"));
}

TEST_F(DataScripts, GetResultsAndReturnVerdicts) {
  IterationResult first{{{"y", Tensor::of<float>({2}, {1, 2})}, {"z", Tensor::of<float>({1}, {5})}}, 0.5, "one"};
  IterationResult second{
      {{"y", Tensor::of<float>({2}, {1, 2})}, {"z", Tensor::of<float>({1}, {6})}}, std::nullopt, "two"};
  const ScriptComparison verdict = host().compare({write("compare.py", R"(
import numpy as np

def compare_outputs(a, b):
    assert a.runner_name == "one" and a.runtime == 0.5 and b.runtime is None
    return {name: np.array_equal(value, b[name]) for name, value in a.items()}

def whole(a, b):
    return False
)"),
                                                   "compare_outputs"},
                                                  first, second);
  ASSERT_EQ(verdict.outputs.size(), 2u);
  EXPECT_EQ(verdict.outputs[0], (std::pair<std::string, bool>("y", true)));
  EXPECT_EQ(verdict.outputs[1], (std::pair<std::string, bool>("z", false)));
  EXPECT_FALSE(verdict.passed());
  EXPECT_FALSE(host().compare({(folder_ / "compare.py").string(), "whole"}, first, second).passed());
  EXPECT_THAT(error_of([&] {
                host().compare({write("none.py", "def compare_outputs(a, b):\n    pass\n"), "compare_outputs"}, first,
                               second);
              }).what(),
              HasSubstr("None"));
}

}  // namespace
}  // namespace ulpscope
