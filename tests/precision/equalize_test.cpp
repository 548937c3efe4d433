// Channels are equalized without changing a bit in fp32, and int8 gains by it.
#include "calibration/equalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "engine/build_helpers.h"
#include "precision/repair.h"
#include "precision/search.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kRows = 24, kChannels = 16;

std::vector<float> gaussian(std::int64_t count, unsigned seed, float sigma = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// Weights [rows, columns]; column `large` has values 30 times larger.
std::vector<float> with_large_column(std::int64_t rows, std::int64_t columns, std::int64_t large, unsigned seed) {
  std::vector<float> values = gaussian(rows * columns, seed, 0.3f);
  for (std::int64_t r = 0; r < rows; ++r) values[r * columns + large] *= 30;
  return values;
}

std::vector<float> large_at(std::size_t index, unsigned seed) {
  std::vector<float> values = gaussian(kChannels, seed, 0.5f);
  values[index] = 25;
  return values;
}

void constant(Model& model, const std::string& name, const Dims& dims, const std::vector<float>& values) {
  *model.graph().add_initializer() = float_tensor(name, dims, values);
}

/// What the tests work on: one network with inputs, calibrated and assigned in int8.
struct Setting {
  std::shared_ptr<const Network> network;
  std::vector<TensorMap> samples;
  BuildOptions build;
  std::shared_ptr<const Specialization> spec;
  Assignment low;
  std::map<std::string, ChannelRange> ranges;

  /// `high`: layers that stay in fp32, so that only the others' errors show.
  explicit Setting(const std::shared_ptr<Network>& of, const std::set<std::string>& high = {}) : network(of) {
    for (Layer& layer : of->layers)
      if (high.contains(layer.name)) layer.precision = DataType::kFloat32;
    for (unsigned s = 0; s < 3; ++s) {
      TensorMap sample;
      for (TensorId id : network->inputs) {
        const Shape& shape = *network->tensor(id).shape;
        sample.push_back({network->tensor(id).name, Tensor::of<float>(shape, gaussian(num_elements(shape), s + 100))});
      }
      samples.push_back(std::move(sample));
    }
    CalibrationOptions calibration;
    calibration.algorithm = CalibrationAlgorithm::kMinMax;
    std::size_t next = 0;
    build.scales = calibrate(network, calibration, [&]() -> std::optional<TensorMap> {
                     return next < samples.size() ? std::optional(samples[next++]) : std::nullopt;
                   }).scales;
    build.enabled.set(Precision::kINT8);
    build.assume_lowest = true;
    build.fusion = Fusion::kNone;
    build.constraints = ConstraintMode::kObey;
    std::vector<Shape> shapes;
    for (TensorId id : network->inputs) shapes.push_back(*network->tensor(id).shape);
    spec = specialize(*network, shapes);
    low = assign_precisions(*spec, build);
    ranges = channel_ranges(*network, equalizable_tensors(*spec, low), samples);
  }

  std::vector<Equalization> found() const { return find_equalizations(*spec, low, ranges, build.scales); }

  std::vector<std::string> tensors() const {
    std::vector<std::string> names;
    for (const Equalization& each : found()) names.push_back((each.copies ? "copy of " : "") + each.tensor);
    return names;
  }

  std::vector<float> outputs(const Network& of, const BuildOptions& options) const {
    const auto engine = Engine::build(std::make_shared<const Network>(of), options);
    std::vector<float> all;
    for (const TensorMap& sample : samples) {
      std::vector<Tensor> inputs;
      for (const auto& input : sample) inputs.push_back(input.tensor);
      for (const Tensor& output : engine->run(inputs)) {
        const std::vector<float> values = floats(output);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(total);
}

/// fp32 keeps its bits; the error of int8 falls to less than `share`.
void expect_gain(const Setting& setting, double share) {
  const std::vector<Equalization> found = setting.found();
  ASSERT_FALSE(found.empty());
  Network network = *setting.network;
  BuildOptions repaired = setting.build;
  for (const Equalization& each : found) {
    apply_equalization(network, repaired.scales, each);
    EXPECT_LT(each.scale_after, each.scale_before);
    EXPECT_NE(std::ranges::max(each.exponents), 0);
  }
  network.check();
  BuildOptions exact;
  exact.fusion = Fusion::kNone;
  const std::vector<float> before = setting.outputs(*setting.network, exact), after = setting.outputs(network, exact);
  ASSERT_EQ(before.size(), after.size());
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
  const double coarse = distance(setting.outputs(*setting.network, setting.build), before);
  const double fine = distance(setting.outputs(network, repaired), before);
  EXPECT_GT(coarse, 0);
  EXPECT_LT(fine, share * coarse);
}

/// x -> Producer -> t -> MatMul by w -> y, with what `middle` adds between x and t.
template <typename Middle>
Setting matmul_after(const Middle& middle, const std::set<std::string>& high = {}) {
  Model model;
  model.input("x", {kRows, kChannels});
  middle(model);
  constant(model, "w", {kChannels, 8}, gaussian(kChannels * 8, 5, 0.2f));
  model.node("MatMul", {"t", "w"}, {"y"}, "Reader");
  model.output("y");
  return Setting(model.load(), high);
}

TEST(Equalize, FoldsIntoAFactorOfOneElement) {
  const Setting setting = matmul_after(
      [](Model& model) {
        constant(model, "first", {kChannels, kChannels}, with_large_column(kChannels, kChannels, 3, 1));
        constant(model, "half", {}, {0.5f});
        model.node("MatMul", {"x", "first"}, {"a"}, "First");
        model.node("Erf", {"a"}, {"e"}, "Erf");
        model.node("Mul", {"a", "e"}, {"m"}, "Gate");
        model.node("Mul", {"m", "half"}, {"t"}, "Half");
      },
      {"First", "Gate"});
  EXPECT_THAT(setting.tensors(), ElementsAre("t"));
  const Equalization found = setting.found()[0];
  EXPECT_EQ(found.producer, "Half");
  EXPECT_THAT(found.readers, ElementsAre("Reader"));
  EXPECT_GE(found.exponents[3], 3);
  expect_gain(setting, 0.5);
}

TEST(Equalize, ChannelsKeepRoomForTwiceWhatSamplesShow) {
  const Setting setting = matmul_after(
      [](Model& model) {
        constant(model, "first", {kChannels, kChannels}, with_large_column(kChannels, kChannels, 3, 1));
        model.node("MatMul", {"x", "first"}, {"t"}, "First");
      },
      {"First"});
  const Equalization found = setting.found().at(0);
  const std::vector<float>& largest = setting.ranges.at("t").largest;
  for (std::size_t k = 0; k < largest.size(); ++k) {
    const float held = std::ldexp(127 * found.scale_after, found.exponents[k]);
    EXPECT_GE(held * 1.0001F, std::min(127 * found.scale_before, 2 * largest[k])) << k;
  }
}

TEST(Equalize, FoldsIntoDivisors) {
  const Setting setting = matmul_after(
      [](Model& model) {
        constant(model, "scale", {kChannels}, large_at(7, 1));
        constant(model, "six", {1}, {6.0f});
        model.node("Mul", {"x", "scale"}, {"m"}, "Scale");
        model.node("Div", {"m", "six"}, {"t"}, "Div");
      },
      {"Scale"});
  EXPECT_THAT(setting.tensors(), ElementsAre("t"));
  expect_gain(setting, 0.4);
}

TEST(Equalize, FoldsIntoProductsTheirBiasesAndThroughRelu) {
  for (const char* bias_first : {"", "yes"}) {
    const Setting setting = matmul_after(
        [&](Model& model) {
          constant(model, "first", {kChannels, kChannels}, with_large_column(kChannels, kChannels, 3, 1));
          constant(model, "bias", {kChannels}, gaussian(kChannels, 2));
          model.node("MatMul", {"x", "first"}, {"a"}, "First");
          if (*bias_first != 0)
            model.node("Add", {"bias", "a"}, {"b"}, "Bias");
          else
            model.node("Add", {"a", "bias"}, {"b"}, "Bias");
          model.node("Relu", {"b"}, {"t"}, "Relu");
        },
        {"First"});
    EXPECT_THAT(setting.tensors(), ElementsAre("t"));
    expect_gain(setting, 0.5);
  }
}

TEST(Equalize, FoldsIntoGemm) {
  const Setting setting = matmul_after(
      [](Model& model) {
        std::vector<float> columns = with_large_column(kChannels, kChannels, 2, 1), rows(columns.size());
        for (std::size_t i = 0; i < columns.size(); ++i) rows[i % kChannels * kChannels + i / kChannels] = columns[i];
        constant(model, "first", {kChannels, kChannels}, rows);
        constant(model, "bias", {1}, {0.3f});
        auto& node = model.node("Gemm", {"x", "first", "bias"}, {"a"}, "First");
        add_attribute(node, "transB", onnx::AttributeProto::INT).set_i(1);
        model.node("LeakyRelu", {"a"}, {"t"}, "Leaky");
      },
      {"First"});
  EXPECT_THAT(setting.tensors(), ElementsAre("t"));
  expect_gain(setting, 0.5);
}

TEST(Equalize, FoldsIntoLayerNormalizations) {
  const Setting setting = matmul_after([](Model& model) {
    constant(model, "gamma", {kChannels}, large_at(9, 1));
    constant(model, "beta", {kChannels}, gaussian(kChannels, 2));
    model.node("LayerNormalization", {"x", "gamma", "beta"}, {"t"}, "Norm");
  });
  EXPECT_THAT(setting.tensors(), ElementsAre("t"));
  expect_gain(setting, 0.5);
}

/// Convolutions with groups on both sides, a BatchNormalization between where it is asked for.
Setting convolutions(std::int64_t groups, bool normalize, bool transposed) {
  Model model;
  model.input("x", {1, 8, 10, 10});
  const std::int64_t per = 8 / groups;
  std::vector<float> first = gaussian(8 * per * 9, 1, 0.3f);
  for (std::int64_t i = 0; i < per * 9; ++i) first[5 * per * 9 + i] *= 30;
  constant(model, "first", {8, per, 3, 3}, first);
  constant(model, "bias", {8}, gaussian(8, 2));
  const auto grouped = [&](onnx::NodeProto& node) {
    add_attribute(node, "group", onnx::AttributeProto::INT).set_i(groups);
  };
  grouped(model.node("Conv", {"x", "first", "bias"}, {"a"}, "First"));
  if (normalize) {
    for (const char* name : {"scale", "shift", "mean"}) constant(model, name, {8}, gaussian(8, 3));
    constant(model, "variance", {8}, std::vector<float>(8, 2.0f));
    model.node("BatchNormalization", {"a", "scale", "shift", "mean", "variance"}, {"n"}, "Norm");
  }
  model.node("Relu", {normalize ? "n" : "a"}, {"t"}, "Relu");
  constant(model, "w", {8, per, 3, 3}, gaussian(8 * per * 9, 4, 0.3f));
  grouped(model.node(transposed ? "ConvTranspose" : "Conv", {"t", "w"}, {"y"}, "Reader"));
  model.output("y");
  return Setting(model.load(), {"First"});
}

TEST(Equalize, FoldsIntoConvolutionsOfAnyGroups) {
  for (std::int64_t groups : {1, 2})
    for (bool normalize : {false, true})
      for (bool transposed : {false, true}) {
        SCOPED_TRACE(groups * 100 + normalize * 10 + transposed);
        const Setting setting = convolutions(groups, normalize, transposed);
        EXPECT_THAT(setting.tensors(), ElementsAre("t"));
        expect_gain(setting, 0.6);
      }
  // Depthwise weights take the factor into the scale of their own output channel: nothing is lost.
  const Setting depthwise = convolutions(8, false, false);
  EXPECT_THAT(depthwise.tensors(), ElementsAre("t"));
  expect_gain(depthwise, 0.9);
}

/// Two tensors made with one constant, and two products with one matrix.
TEST(Equalize, GivesSharedConstantsCopies) {
  Model model;
  model.input("x", {kRows, kChannels});
  constant(model, "scale", {kChannels}, large_at(3, 1));
  constant(model, "half", {}, {0.5f});
  constant(model, "w", {kChannels, kChannels}, gaussian(kChannels * kChannels, 5, 0.2f));
  model.node("Mul", {"x", "scale"}, {"m"}, "Scale");
  model.node("Mul", {"m", "half"}, {"t"}, "Half1");
  model.node("MatMul", {"t", "w"}, {"y"}, "Reader1");
  model.node("Mul", {"x", "half"}, {"u"}, "Half2");
  model.node("MatMul", {"u", "w"}, {"z"}, "Reader2");
  model.output("y");
  model.output("z");
  const Setting setting(model.load(), {"Scale"});
  EXPECT_THAT(setting.tensors(), ElementsAre("t"));
  expect_gain(setting, 0.7);
  Network network = *setting.network;
  auto scales = setting.build.scales;
  apply_equalization(network, scales, setting.found()[0]);
  EXPECT_EQ(network.layer(network.find_layer("Half2")).inputs[1], network.find_tensor("half"));
  EXPECT_EQ(network.layer(network.find_layer("Reader2")).inputs[1], network.find_tensor("w"));
  EXPECT_NE(network.layer(network.find_layer("Half1")).inputs[1], network.find_tensor("half"));
  EXPECT_EQ(floats(network.tensor(network.find_tensor("w")).value),
            floats(setting.network->tensor(setting.network->find_tensor("w")).value));
  EXPECT_EQ(scales.at("t"), setting.found()[0].scale_after);
  EXPECT_EQ(scales.at("u"), setting.build.scales.at("u"));
}

/// The sum with the tensor itself keeps it from being rescaled: its product gets a copy.
TEST(Equalize, AddsALayerWhereOthersReadTheTensor) {
  Model model;
  model.input("x", {kRows, kChannels});
  constant(model, "gamma", {kChannels}, large_at(9, 1));
  constant(model, "beta", {kChannels}, gaussian(kChannels, 2));
  constant(model, "w", {kChannels, kChannels}, gaussian(kChannels * kChannels, 5, 0.2f));
  model.node("LayerNormalization", {"x", "gamma", "beta"}, {"t"}, "Norm");
  model.node("MatMul", {"t", "w"}, {"p"}, "Reader");
  model.node("Add", {"p", "t"}, {"y"}, "Residual");
  model.output("y");
  const Setting setting(model.load(), {"Residual"});
  EXPECT_THAT(setting.tensors(), ElementsAre("copy of t"));
  expect_gain(setting, 0.5);
  Network network = *setting.network;
  auto scales = setting.build.scales;
  apply_equalization(network, scales, setting.found()[0]);
  EXPECT_EQ(network.layers.size(), setting.network->layers.size() + 1);
  EXPECT_EQ(scales.at("t"), setting.build.scales.at("t"));
  EXPECT_EQ(scales.at("t/equalised"), setting.found()[0].scale_after);
}

/// A scalar summand would become a vector, which has an int8 form of its own: the product gets a copy instead.
TEST(Equalize, MakesNoVectorsOfScalarSummands) {
  const Setting setting = matmul_after(
      [](Model& model) {
        constant(model, "scale", {kChannels}, large_at(7, 1));
        constant(model, "half", {}, {0.5f});
        model.node("Mul", {"x", "scale"}, {"m"}, "Scale");
        model.node("Mul", {"m", "half"}, {"h"}, "Half");
        model.node("Add", {"h", "half"}, {"t"}, "Shift");
      },
      {"Scale"});
  EXPECT_THAT(setting.tensors(), ElementsAre("copy of t"));
  expect_gain(setting, 0.6);
}

TEST(Equalize, LeavesAloneWhatGainsNothingOrIsNotInt8) {
  const auto even = [](Model& model) {
    constant(model, "half", {}, {0.5f});
    model.node("Mul", {"x", "half"}, {"t"}, "Half");
  };
  EXPECT_THAT(matmul_after(even).tensors(), IsEmpty());
  const auto uneven = [](Model& model) {
    constant(model, "scale", {kChannels}, large_at(7, 1));
    constant(model, "half", {}, {0.5f});
    model.node("Mul", {"x", "scale"}, {"m"}, "Scale");
    model.node("Mul", {"m", "half"}, {"t"}, "Half");
  };
  EXPECT_THAT(matmul_after(uneven, {"Scale"}).tensors(), ElementsAre("t"));
  EXPECT_THAT(matmul_after(uneven, {"Scale", "Reader"}).tensors(), IsEmpty());
  // Both operands are computed: there are no weights to take the factors.
  Model model;
  model.input("x", {kRows, kChannels});
  model.input("w", {kChannels, 8});
  uneven(model);
  model.node("MatMul", {"t", "w"}, {"y"}, "Reader");
  model.output("y");
  EXPECT_THAT(Setting(model.load(), {"Scale"}).tensors(), IsEmpty());
}

TEST(Equalize, RefusesWhatDoesNotFit) {
  const Setting setting = matmul_after(
      [](Model& model) {
        constant(model, "scale", {kChannels}, large_at(7, 1));
        constant(model, "half", {}, {0.5f});
        model.node("Mul", {"x", "scale"}, {"m"}, "Scale");
        model.node("Mul", {"m", "half"}, {"t"}, "Half");
      },
      {"Scale"});
  const Equalization good = setting.found().at(0);
  const auto message = [&](const Equalization& bad) {
    Network network = *setting.network;
    auto scales = setting.build.scales;
    try {
      apply_equalization(network, scales, bad);
    } catch (const Error& e) {
      EXPECT_EQ(network.tensors.size(), setting.network->tensors.size());
      EXPECT_EQ(scales, setting.build.scales);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(good), IsEmpty());
  Equalization bad = good;
  bad.tensor = "tt";
  EXPECT_THAT(message(bad), HasSubstr("no tensor of that name"));
  bad = good;
  bad.tensor = "y";
  EXPECT_THAT(message(bad), HasSubstr("factors per channel"));
  bad = good;
  bad.exponents.pop_back();
  EXPECT_THAT(message(bad), HasSubstr("expected 16 exponents"));
  bad = good;
  bad.exponents[0] = 127;  // 0.5 / 2^127 is subnormal.
  EXPECT_THAT(message(bad), HasSubstr("leaves the range of float32"));
  bad = good;
  bad.scale_after = 0;
  EXPECT_THAT(message(bad), HasSubstr("positive scale"));
}

TEST(Equalize, IsRepeatedFromTheRepairsOfAnAnswer) {
  const Setting setting = matmul_after([](Model& model) {
    constant(model, "gamma", {kChannels}, large_at(9, 1));
    constant(model, "beta", {kChannels}, gaussian(kChannels, 2));
    model.node("LayerNormalization", {"x", "gamma", "beta"}, {"t"}, "Norm");
  });
  SearchData data;
  data.network = setting.network;
  data.samples = setting.samples;
  SearchTask options;
  options.build = setting.build;
  options.objective = Objective::kSmallest;
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 2e-2);
  Journal journal;
  const Answer answer = search_precisions(data, *criterion, options, journal);
  ASSERT_EQ(answer.repairs.size(), 1u);
  EXPECT_EQ(kind_of(answer.repairs[0]), "equalize");
  EXPECT_THAT(answer.repairs[0].text, HasSubstr("powers of two"));
  EXPECT_THAT(answer.kept, IsEmpty());
  Network by_repairs = *setting.network, by_hand = by_repairs;
  auto scales = setting.build.scales, same = scales;
  apply_repairs(by_repairs, scales, answer.repairs);
  apply_equalization(by_hand, same, setting.found().at(0));
  EXPECT_EQ(scales, same);
  BuildOptions repaired = setting.build;
  repaired.scales = scales;
  EXPECT_EQ(setting.outputs(by_repairs, repaired), setting.outputs(by_hand, repaired));
  options.repair = false;
  Journal second;
  EXPECT_FALSE(search_precisions(data, *criterion, options, second).kept.empty());
}

}  // namespace
}  // namespace ulpscope::testing
