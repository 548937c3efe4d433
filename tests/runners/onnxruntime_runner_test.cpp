#include "runners/onnxruntime_runner.h"

#include <gmock/gmock.h>

#include "runners/script_fixture.h"
#include "runners/tensorrt_runner.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A field of a protobuf message (https://protobuf.dev/programming-guides/encoding): bytes, or a number.
std::string field(int number, const std::string& content) {
  return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(content.size()) + content;
}
std::string field(int number, int value) {
  return std::string(1, static_cast<char>(number << 3)) + static_cast<char>(value);
}

/// ValueInfoProto of a float tensor ["n", 2].
std::string value_info(const std::string& name) {
  const std::string shape = field(1, field(2, "n")) + field(1, field(1, 2));
  return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)));
}

std::string node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
  std::string result;
  for (const std::string& input : inputs) result += field(1, input);
  return result + field(2, output) + field(4, op);
}

/// y = -(x + x), at opset 13.
std::string small_model() {
  const std::string graph = field(1, node("Add", {"x", "x"}, "doubled")) + field(1, node("Neg", {"doubled"}, "y")) +
                            field(2, "g") + field(11, value_info("x")) + field(12, value_info("y"));
  return field(1, 8) + field(7, graph) + field(8, field(2, 13));
}

class OnnxRuntimeRunnerTest : public ScriptTest {
 protected:
  void SetUp() override {
    worker_ = Worker::start(options());
    try {
      make_onnxruntime_runner(write("m.onnx", small_model()), {}, worker_)->activate();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) GTEST_SKIP() << error.what();
      throw;
    }
  }
  std::shared_ptr<Worker> worker_;
};

TEST_F(OnnxRuntimeRunnerTest, RunsAModelByPath) {
  const auto runner = make_onnxruntime_runner((folder_ / "m.onnx").string(), {}, worker_);
  runner->activate();
  ASSERT_EQ(runner->input_bindings().size(), 1u);
  EXPECT_EQ(runner->input_bindings()[0].shape, (Shape{-1, 2}));
  const TensorMap outputs =
      runner->infer({{"unused", Tensor::scalar(1.0f)}, {"x", Tensor::of<float>({1, 2}, {1, -2})}});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].name, "y");
  EXPECT_THAT(outputs[0].tensor.values<float>(), ElementsAre(-2, 4));
  EXPECT_GT(runner->last_inference_seconds(), 0);
  runner->deactivate();
  runner->activate();
  EXPECT_EQ(runner->infer({{"x", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6})}})[0].tensor.shape(), (Shape{3, 2}));
}

TEST_F(OnnxRuntimeRunnerTest, RunsAModelByBytesInAProcessOfItsOwn) {
  const auto runner = make_onnxruntime_runner(small_model(), "", {});
  runner->activate();
  EXPECT_THAT(runner->infer({{"x", Tensor::of<float>({1, 2}, {1, -2})}})[0].tensor.values<float>(), ElementsAre(-2, 4));
}

TEST_F(OnnxRuntimeRunnerTest, HandsOutIntermediateValues) {
  OnnxRuntimeOptions options;
  options.mark_all = true;
  const auto runner = make_onnxruntime_runner((folder_ / "m.onnx").string(), options, worker_);
  runner->activate();
  const TensorMap outputs = runner->infer({{"x", Tensor::of<float>({1, 2}, {1, -2})}});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].name, "doubled");
  EXPECT_THAT(outputs[0].tensor.values<float>(), ElementsAre(2, -4));
}

TEST_F(OnnxRuntimeRunnerTest, InputsThatDoNotFitAreNamed) {
  const auto runner = make_onnxruntime_runner((folder_ / "m.onnx").string(), {}, worker_);
  runner->activate();
  EXPECT_THAT(error_of([&] { runner->infer({}); }).what(), HasSubstr("'x'"));
  EXPECT_THAT(error_of([&] {
                runner->infer({{"x", Tensor::of<double>({1, 2}, {1, 2})}});
              }).what(),
              HasSubstr("float64"));
  EXPECT_THAT(error_of([&] {
                runner->infer({{"x", Tensor::of<float>({1, 3}, {1, 2, 3})}});
              }).what(),
              HasSubstr("(-1, 2)"));
}

TEST_F(OnnxRuntimeRunnerTest, BadModelsAndProvidersAreNamed) {
  EXPECT_EQ(error_of([&] { make_onnxruntime_runner("/nonexistent.onnx", {}, worker_)->activate(); }).code(),
            ErrorCode::kNotFound);
  const Error bad =
      error_of([&] { make_onnxruntime_runner(write("bad.onnx", "not a model"), {}, worker_)->activate(); });
  EXPECT_EQ(bad.code(), ErrorCode::kInvalidFile);
  EXPECT_THAT(bad.what(), HasSubstr("bad.onnx"));
  OnnxRuntimeOptions options;
  options.providers = {"quantum"};
  const Error provider =
      error_of([&] { make_onnxruntime_runner((folder_ / "m.onnx").string(), options, worker_)->activate(); });
  EXPECT_THAT(provider.what(), HasSubstr("CPUExecutionProvider"));
  EXPECT_EQ(provider.code(), ErrorCode::kInvalidArgument);
}

TEST_F(OnnxRuntimeRunnerTest, WithoutTensorRTTheRefusalNamesTheCommand) {
  write("tensorrt.py", "raise ImportError('no tensorrt here')\n");
  ::setenv("PYTHONPATH", folder_.c_str(), 1);
  const auto worker = Worker::start(options());
  ::unsetenv("PYTHONPATH");
  const Error error = error_of([&] { make_tensorrt_runner((folder_ / "m.onnx").string(), {}, worker)->activate(); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("-m pip install tensorrt"));
}

TEST(MissingOnnxRuntimeTest, IsNamedWithTheCommandThatInstallsIt) {
  std::string pattern = (std::filesystem::temp_directory_path() / "ulpscope-ort-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  std::ofstream(folder / "onnxruntime.py")
      << "raise ModuleNotFoundError(\"No module named 'onnxruntime'\", name='onnxruntime')\n";
  std::ofstream(folder / "m.onnx") << small_model();
  ::setenv("PYTHONPATH", folder.c_str(), 1);
  try {
    make_onnxruntime_runner((folder / "m.onnx").string(), {})->activate();
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("-m pip install onnxruntime"));
  }
  ::unsetenv("PYTHONPATH");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ulpscope
