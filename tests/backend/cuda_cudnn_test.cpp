// cuDNN without a GPU: declarations against its headers, and plans for a device that a text describes.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

#include "backend/cuda/convolution_graph.h"
#include "backend/cuda/cudnn.h"
#include "backend/random_convolutions.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

using Kind = ConvolutionStep::Kind;

TEST(CudnnDeclarations, AreThoseOfTheHeaders) {
  const std::string headers = "/usr/local/cuda/include", source = ULPSCOPE_SOURCE_DIR;
  if (!std::filesystem::exists(headers + "/cudnn.h")) GTEST_SKIP() << "no cudnn.h in " << headers;
  if (std::system("c++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no compiler c++";
  const std::string command = fmt::format(
      "c++ -std=c++20 -fsyntax-only -I'{0}/src' -I'{0}/include' -I{1} '{0}/tests/backend/cuda_cudnn_declarations.cpp'",
      source, headers);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

TEST(ConvolutionTactic, IsOneLineOfText) {
  for (const ConvolutionTactic& tactic :
       {ConvolutionTactic{}, ConvolutionTactic{.engine = 39, .knobs = {{2, 1}, {17, -3}}}})
    EXPECT_EQ(tactic_from_string(text_of(tactic)), tactic) << text_of(tactic);
  EXPECT_EQ(text_of(ConvolutionTactic{.engine = 39, .knobs = {{2, 1}, {17, 3}}}), "engine 39 knobs 2=1,17=3");
  for (const char* text : {"", "engine", "engine x", "engine 1 ", "engine 1 knobs ", "engine 1 knobs 2",
                           "engine 1knobs", "engine 1 knobs 2=1,", "engine 1 knobs 2=1 ", " engine 1"})
    EXPECT_EQ(tactic_from_string(text), std::nullopt) << text;
}

/// An H200, as cuDNN 9.8 and later write it down.
constexpr std::string_view kDevice =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"totalGlobalMem":150000000000,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,)"
    R"("driverVer":13000,"deviceName":"NVIDIA H200"})";

class CudnnGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      if (cudnn::functions().version() < 90800) GTEST_SKIP() << "cuDNN before 9.8 needs a GPU to plan";
    } catch (const Error& missing) {
      GTEST_SKIP() << missing.what();
    }
    // Engines that are compiled at run time ask for a driver, if only for its stub.
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr &&
        dlopen("/usr/local/cuda/lib64/stubs/libcuda.so", RTLD_NOW) == nullptr)
      GTEST_SKIP() << "neither a driver nor its stub";
    properties_ = cudnn::Descriptor(cudnn::DescriptorType::kDeviceProperties, "a device's properties");
    properties_.set(cudnn::Field::kDeviceJson, cudnn::FieldType::kChar, static_cast<std::int64_t>(kDevice.size()),
                    kDevice.data());
    properties_.finalize();
  }

  /// cuDNN has engines for this graph. `precompiled`: a tactic makes a plan, too; others need a GPU for that.
  void expect_tactics(const ConvolutionSpec& spec, const std::string& what, bool precompiled) {
    const ConvolutionGraph graph(spec, {.properties = &properties_});
    std::vector<ConvolutionTactic> all;
    for (const auto mode : {cudnn::HeuristicsMode::kA, cudnn::HeuristicsMode::kB, cudnn::HeuristicsMode::kFallback})
      for (ConvolutionTactic& tactic : graph.tactics(mode)) all.push_back(std::move(tactic));
    EXPECT_FALSE(all.empty()) << what;
    if (spec.stored == spec.operands)  // Whose engines have settings, without which they are others.
      EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const auto& tactic) { return !tactic.knobs.empty(); }))
          << what;
    EXPECT_TRUE(!precompiled || std::any_of(all.begin(), all.end(),
                                            [&](const ConvolutionTactic& tactic) {
                                              const auto made = graph.build(tactic);
                                              return made &&
                                                     made->plan.read_int64(cudnn::Field::kPlanWorkspaceSize) >= 0;
                                            }))
        << what << ": " << all.size() << " tactics";
  }
  cudnn::Descriptor properties_;
};

ConvolutionSpec square(std::int64_t channels, std::int64_t outputs, DataType operands, DataType stored,
                       std::vector<ConvolutionStep> steps) {
  ConvolutionSpec spec{.input = {2, channels, 14, 14},
                       .weights = {outputs, channels, 3, 3},
                       .output = {2, outputs, 14, 14},
                       .strides = {1, 1},
                       .dilations = {1, 1},
                       .pads_begin = {1, 1},
                       .pads_end = {1, 1}};
  spec.operands = operands;
  spec.stored = stored;
  spec.steps = std::move(steps);
  return spec;
}

TEST_F(CudnnGraphs, HavePlansForEveryStep) {
  const DataType half = DataType::kFloat16;
  expect_tactics(square(64, 64, half, half, {}), "plain", true);
  expect_tactics(square(64, 64, half, DataType::kFloat32, {}), "stored in float32", false);
  expect_tactics(square(64, 64, half, half, {{Kind::kBias, half}}), "bias", false);
  expect_tactics(square(64, 64, half, half, {{Kind::kBias}}), "bias in float32", false);
  expect_tactics(square(64, 64, half, half, {{Kind::kBias, half}, {Kind::kResidual, half}, {Kind::kRelu}}), "residual",
                 false);
  for (const Kind kind : {Kind::kRelu, Kind::kSigmoid, Kind::kTanh, Kind::kSwish, Kind::kGelu})
    expect_tactics(square(64, 64, half, half, {{Kind::kBias, half}, {kind}}), fmt::format("{}", static_cast<int>(kind)),
                   false);
}

TEST_F(CudnnGraphs, HavePlansForEveryType) {
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32}) {
    ConvolutionSpec spec = square(32, 64, type, type, {{Kind::kBias, type}, {Kind::kRelu}});
    expect_tactics(spec, std::string(name_of(type)), true);
    spec.tf32 = true;
    if (type == DataType::kFloat32) expect_tactics(spec, "tf32", true);
  }
  expect_tactics(square(32, 64, DataType::kInt8, DataType::kInt32, {}), "int8 to int32", true);
  expect_tactics(square(32, 64, DataType::kInt8, DataType::kFloat16, {{Kind::kBias}}), "int8 to float16", false);
  expect_tactics(square(32, 64, DataType::kInt8, DataType::kFloat32, {}), "int8 to float32", false);
}

TEST_F(CudnnGraphs, HavePlansForEveryGeometry) {
  ConvolutionSpec spec = square(32, 32, DataType::kFloat16, DataType::kFloat16, {});
  spec.pads_begin = {0, 1};
  spec.pads_end = {2, 1};
  expect_tactics(spec, "asymmetric pads", true);
  spec.groups = 4;
  spec.weights = {32, 8, 3, 3};
  expect_tactics(spec, "groups", true);
  spec.groups = 32;
  spec.weights = {32, 1, 3, 3};
  expect_tactics(spec, "depthwise", true);
  spec = square(64, 32, DataType::kFloat16, DataType::kFloat16, {});
  spec.dilations = {2, 2};
  spec.strides = {2, 1};
  spec.pads_begin = spec.pads_end = {2, 2};
  spec.output = {2, 32, 7, 14};
  expect_tactics(spec, "strides and dilations", true);
  ConvolutionSpec line{.input = {2, 64, 30},
                       .weights = {32, 64, 5},
                       .output = {2, 32, 30},
                       .strides = {1},
                       .dilations = {1},
                       .pads_begin = {2},
                       .pads_end = {2}};
  line.steps = {{Kind::kBias, DataType::kFloat16}};
  expect_tactics(line, "one dimension", true);
  ConvolutionSpec volume{.input = {1, 32, 6, 6, 6},
                         .weights = {32, 32, 3, 3, 3},
                         .output = {1, 32, 6, 6, 6},
                         .strides = {1, 1, 1},
                         .dilations = {1, 1, 1},
                         .pads_begin = {1, 1, 1},
                         .pads_end = {1, 1, 1}};
  volume.steps = {{Kind::kBias, DataType::kFloat16}};
  expect_tactics(volume, "three dimensions", true);
}

TEST_F(CudnnGraphs, AreNeverMalformed) {
  const std::uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    ConvolutionSpec spec = random_convolutions::random_spec(random, 100, 20);
    const Kind kinds[] = {Kind::kBias, Kind::kResidual, Kind::kRelu, Kind::kSigmoid,
                          Kind::kTanh, Kind::kSwish,    Kind::kGelu};
    for (std::size_t step = random() % 4; step > 0; --step)
      spec.steps.push_back({kinds[random() % 7], random() % 2 == 0 ? DataType::kFloat32 : DataType::kFloat16});
    try {
      const ConvolutionGraph graph(spec, {.properties = &properties_});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported)
          << error.what() << "; seed " << seed << ", x " << ulpscope::to_string(spec.input) << " w "
          << ulpscope::to_string(spec.weights) << " groups " << spec.groups << " " << name_of(spec.operands) << " to "
          << name_of(spec.stored);
    }
  }
}

TEST_F(CudnnGraphs, NameWhatIsWrong) {
  ConvolutionSpec spec = square(32, 32, DataType::kFloat16, DataType::kFloat16, {});
  spec.output = {2, 32, 13, 14};
  try {
    const ConvolutionGraph graph(spec, {.properties = &properties_});
    FAIL() << "a graph of a shape that does not follow";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cuDNN could not finalize a convolution's operation"))
        << error.what();
  }
  spec.stored = DataType::kInt64;
  EXPECT_THROW(ConvolutionGraph(spec, {.properties = &properties_}), Error);
}

TEST(ConvolutionLibrary, NeedsAGpu) {
  try {
    ConvolutionLibrary library(nullptr);
    GTEST_SKIP() << "a GPU";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cuDNN")) << error.what();
  }
}

}  // namespace
}  // namespace ulpscope::cuda
