// Scripts that import Polygraphy: where it is, where it is not, and what it prints.
#include <gmock/gmock.h>

#include "graph/network_builder.h"
#include "ops/registry.h"
#include "runners/script_fixture.h"
#include "runners/script_host.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PolygraphyTest : public ScriptTest {
 protected:
  ~PolygraphyTest() override {
    ::unsetenv("PYTHONPATH");
    ::unsetenv("POLYGRAPHY_AUTOINSTALL_DEPS");
    ::unsetenv("POLYGRAPHY_USE_TENSORRT_RTX");
    set_log_level(LogLevel::kInfo);
  }

  std::unique_ptr<ScriptHost> host() {
    ScriptHost::Callbacks callbacks;
    callbacks.ops = &op_registry();
    return std::make_unique<ScriptHost>(callbacks, options());
  }

  BuildOptions configure(const std::string& body) {
    testing::NetworkBuilder builder;
    builder.input("x");
    builder.network.tensor(builder.network.inputs[0]).shape = Shape{-1, 3};
    builder.layer("Neg", {"x"}, {"y"}, "negating");
    builder.output("y");
    for (TensorInfo& info : builder.network.tensors) info.type = DataType::kFloat32;
    return host()->load_config({write("config.py", body), "load_config"}, builder.network, {});
  }

  ScriptComparison compare(const std::string& body, const Tensor& first, const Tensor& second) {
    return host()->compare({write("compare.py", body), "compare_outputs"}, {{{"y", first}}, 0.5, "one"},
                           {{{"y", second}}, std::nullopt, "two"});
  }
};

constexpr const char* kCreatesConfig =
    "from polygraphy.backend.trt import CreateConfig\n\ndef load_config(builder, network):\n"
    "    return CreateConfig(fp16=True)(builder, network)\n";

TEST_F(PolygraphyTest, LogsAtTheLevelOfTheProgramAndWithoutColors) {
  EXPECT_TRUE(configure(kCreatesConfig).enabled.has(Precision::kFP16));
  EXPECT_THAT(out_, HasSubstr("[I] TF32 is disabled by default"));
  EXPECT_THAT(out_, HasSubstr("[W] Input tensor: x"));
  EXPECT_THAT(out_, Not(HasSubstr("color")));
  EXPECT_THAT(out_, Not(HasSubstr("\x1b[")));
  out_.clear();
  set_log_level(LogLevel::kWarning);
  configure(kCreatesConfig);
  EXPECT_THAT(out_, Not(HasSubstr("[I]")));
  EXPECT_THAT(out_, HasSubstr("[W] Input tensor: x"));
}

TEST_F(PolygraphyTest, NeitherInstallsPackagesNorTakesAnotherTensorrt) {
  ::setenv("POLYGRAPHY_AUTOINSTALL_DEPS", "1", 1);
  ::setenv("POLYGRAPHY_USE_TENSORRT_RTX", "1", 1);
  EXPECT_TRUE(configure(kCreatesConfig).enabled.has(Precision::kFP16));
  EXPECT_THAT(error_of([&] {
                configure(
                    "from polygraphy import mod\n\ndef load_config(builder, network):\n"
                    "    return mod.lazy_import('no_package_of_this_name').something\n");
              }).what(),
              HasSubstr("could not be imported"));
}

TEST_F(PolygraphyTest, ErrorsShowTheLinesOfTheScriptAlone) {
  const Error error = error_of([&] {
    configure(
        "from polygraphy.backend.trt import CreateConfig, Profile\n\ndef load_config(builder, network):\n"
        "    return CreateConfig(profiles=[Profile().add('z', (1,), (1,), (1,))])(builder, network)\n");
  });
  EXPECT_THAT(error.what(), HasSubstr("config.py\", line 4, in load_config"));
  EXPECT_THAT(error.what(), Not(HasSubstr("profile.py")));
}

TEST_F(PolygraphyTest, WhereItIsNotInstalledThatIsTheMessage) {
  write("polygraphy.py", "raise ModuleNotFoundError(\"No module named 'polygraphy'\", name='polygraphy')\n");
  ::setenv("PYTHONPATH", folder_.c_str(), 1);
  const Tensor y = Tensor::of<float>({1}, {1});
  for (const Error& error : {error_of([&] { configure(kCreatesConfig); }), error_of([&] {
                               compare("def compare_outputs(first, second):\n    return True\n", y, y);
                             })}) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("-m pip install polygraphy"));
    EXPECT_THAT(error.what(), HasSubstr("ulpscope[scripts]"));
  }
  EXPECT_TRUE(configure("import tensorrt as trt\n\ndef load_config(builder, network):\n"
                        "    config = builder.create_builder_config()\n    config.set_flag(trt.BuilderFlag.FP16)\n"
                        "    return config\n")
                  .enabled.has(Precision::kFP16));
}

TEST_F(PolygraphyTest, ComparesElementsThatNumpyLacks) {
  const std::string body =
      "from polygraphy.comparator import CompareFunc\n\ndef compare_outputs(first, second):\n"
      "    return CompareFunc.simple(atol=0.3, rtol=0)(first, second)\n";
  const Tensor one = Tensor::of<float>({2}, {1, 2}), other = Tensor::of<float>({2}, {1, 2.25}),
               far = Tensor::of<float>({2}, {1, 2.5});
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16, DataType::kFloat8E4M3}) {
    EXPECT_TRUE(compare(body, one.cast(type), other.cast(type)).passed()) << name_of(type);
    EXPECT_FALSE(compare(body, one.cast(type), far.cast(type)).passed());
  }
}

}  // namespace
}  // namespace ulpscope
