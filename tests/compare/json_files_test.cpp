#include "compare/json_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using testing::HasSubstr;

class JsonFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

RunResults example() {
  IterationResult iteration{{{"y", Tensor::of<float>({2}, {1, 2})}, {"a", Tensor::scalar<bool>(true)}}, 0.5, "runner"};
  return {{"runner", {iteration}}, {"runner", {}}};
}

TEST_F(JsonFiles, ResultsGoBothWays) {
  save_results(folder_ / "new" / "results.pkl", example());
  const RunResults copy = load_results(folder_ / "new" / "results.pkl");
  ASSERT_EQ(copy.size(), 2u);
  const IterationResult& iteration = copy[0].second.at(0);
  EXPECT_EQ(iteration.runtime, 0.5);
  EXPECT_EQ(iteration.outputs[0].name, "y");  // the order is kept, not sorted
  EXPECT_EQ(iteration.outputs[1].name, "a");
  EXPECT_EQ(iteration.find("y")->data<float>()[1], 2);
}

TEST_F(JsonFiles, AFolderHoldsOneFilePerIteration) {
  save_results(folder_ / "0000000000.json", example());
  save_results(folder_ / "0000000001.json", example());
  EXPECT_EQ(load_results(folder_)[0].second.size(), 2u);
  RunResults other = example();
  other.pop_back();
  save_results(folder_ / "0000000002.json", other);
  EXPECT_THROW(load_results(folder_), Error);
}

TEST_F(JsonFiles, InputsGoBothWays) {
  save_inputs(folder_ / "inputs", {{{"x", Tensor::of<float>({1}, {3})}}, {}});
  const auto inputs = load_inputs(folder_ / "inputs");
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0][0].tensor.data<float>()[0], 3);
  EXPECT_TRUE(inputs[1].empty());
}

TEST_F(JsonFiles, SeveralIterationsMakeAFolderOfAPathWithoutExtension) {
  const std::vector<TensorMap> three{{{"x", Tensor::of<float>({1}, {3})}}, {}, {{"x", Tensor::of<float>({1}, {5})}}};
  EXPECT_FALSE(is_saved_as_folder(folder_ / "inputs", 1));
  EXPECT_FALSE(is_saved_as_folder(folder_ / "inputs.json", 3));
  EXPECT_TRUE(is_saved_as_folder(folder_ / "", 1));
  save_inputs(folder_ / "inputs", three);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "inputs" / "0000000002.json"));
  const auto inputs = load_inputs(folder_ / "inputs");
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[2][0].tensor.data<float>()[0], 5);
  save_inputs(folder_ / "file", {{}});
  EXPECT_FALSE(is_saved_as_folder(folder_ / "file", 3));
}

TEST_F(JsonFiles, OneIterationNeedsNoList) {
  std::string json = inputs_to_json({{{"x", Tensor::of<float>({1}, {3})}}});
  json = json.substr(1, json.size() - 2);
  EXPECT_EQ(inputs_from_json(json, "here").size(), 1u);
}

TEST_F(JsonFiles, TheWrongKindOfFileIsNamed) {
  try {
    inputs_from_json(results_to_json(example()), "here");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--load-outputs"));
  }
  try {
    results_from_json(inputs_to_json({{}}), "here");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--load-inputs"));
  }
}

TEST_F(JsonFiles, PicklesAreRefusedWithACommand) {
  write_file(folder_ / "golden.pkl", std::string_view("\x80\x03]q\0.", 6));
  try {
    load_results(folder_ / "golden.pkl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    EXPECT_THAT(error.what(), HasSubstr("golden.pkl"));
    EXPECT_THAT(error.what(), HasSubstr("python3 -c"));
  }
}

TEST_F(JsonFiles, EveryTruncationIsAnError) {
  const std::string json = results_to_json(example());
  for (std::size_t size = 0; size < json.size(); ++size)
    EXPECT_THROW(results_from_json(std::string_view(json).substr(0, size), "here"), Error) << size;
}

TEST_F(JsonFiles, WhatNumPyDoesNotHaveIsWrittenInTheTypeThatHoldsIt) {
  const Tensor x = Tensor::of<float>({2}, {-1, 1.5f});
  const std::pair<DataType, DataType> types[] = {{DataType::kBFloat16, DataType::kFloat32},
                                                 {DataType::kFloat8E4M3, DataType::kFloat32},
                                                 {DataType::kInt4, DataType::kInt8}};
  for (const auto& [type, held] : types) {
    const RunResults copy =
        results_from_json(results_to_json({{"runner", {{{{"y", x.cast(type)}}, 0.5, "runner"}}}}), "here");
    const Tensor& y = copy[0].second.at(0).outputs[0].tensor;
    ASSERT_EQ(y.type(), held);
    EXPECT_EQ(y.cast(DataType::kFloat32).data<float>()[1], held == DataType::kInt8 ? 1 : 1.5f);
    EXPECT_EQ(y.cast(DataType::kFloat32).data<float>()[0], -1);
  }
}

TEST_F(JsonFiles, DeepNestingIsRefused) {
  constexpr int kDeep = 300000;
  std::string lazy = "{\"x\":", closing;
  for (int i = 0; i < kDeep; ++i) {
    lazy += "{\"polygraphy_class\":\"LazyArray\",\"values\":";
    closing += '}';
  }
  for (const std::string& text :
       {lazy + "1" + closing + "}", std::string(kDeep, '['), std::string(kDeep, '[') + std::string(kDeep, ']')}) {
    EXPECT_THROW(inputs_from_json(text, "[load] x"), Error);
    EXPECT_THROW(results_from_json(text, "[load] x"), Error);
  }
}

TEST_F(JsonFiles, MissingFilesAndFolders) {
  EXPECT_THROW(load_inputs(folder_ / "none.json"), Error);
  EXPECT_THROW(load_inputs(folder_), Error);
}

TEST(PythonText, IsAsPythonPrintsIt) {
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(0.2), "0.2");
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456789012345), "123456789012345.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(66.66666666666667), "66.66666666666667");
  EXPECT_EQ(python_list({"a", "it's"}), "['a', \"it's\"]");
}

}  // namespace
}  // namespace ulpscope
