// Models of a GPU's kernels: what they tell of groups, and their files.
#include "engine/kernel_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "engine/assign.h"
#include "engine/cost.h"
#include "engine/specialization.h"
#include "engine/target.h"
#include "onnx/model_builder.h"
#include "runtime/kernel_probes.h"
#include "runtime/measure_kernels.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t at(KernelTerm term) { return static_cast<std::size_t>(term); }

/// One with a factor for all that there is: of every kind in fp32, fp16 and int8.
KernelModel full_model() {
  KernelModel model{.networks = 240, .median_error = 0.06, .large_error = 0.28};
  for (std::size_t k = 0; k < kKernelKinds; ++k)
    for (const Precision p : {Precision::kFP32, Precision::kFP16, Precision::kINT8}) {
      const auto kind = static_cast<KernelKind>(k);
      if (p != Precision::kFP32 && !multiplies(kind)) continue;
      const double faster = p == Precision::kFP32   ? 1
                            : p == Precision::kFP16 ? 0.25
                                                    : 0.5,
                   number = 1.0 + 0.1 * static_cast<double>(k);
      model.us[{kind, p}] = {2 * number, 4 * faster * number, 16 * faster * number, 0.5 * number, 0.25 * number,
                             number,     0.75 * number};
    }
  model.us[{KernelKind::kRun, Precision::kFP32}] = {3, 0, 0, 0, 0, 0, 0};
  return model;
}

Target target_with(KernelModel model) {
  Target target = find_target("h100");
  target.kernels = std::make_shared<KernelModel>(std::move(model));
  return target;
}

KernelWork product_work(Precision p) {
  return {.kind = KernelKind::kProduct, .precision = p, .terms = {1, 0.5, 2, 8, 4, 1, 6}};
}

TEST(KernelModel, IsTheSumOfItsTerms) {
  KernelModel model;
  model.us[{KernelKind::kProduct, Precision::kFP32}] = {3, 2, 10, 0.5, 0.25, 4, 0.125};
  const Target target = target_with(model);
  EXPECT_DOUBLE_EQ(target.kernel_us(product_work(Precision::kFP32)), 3 + 1 + 20 + 4 + 1 + 4 + 0.75);
}

TEST(KernelModel, PrecisionsWithoutFactorsTakeTheNearestOnesAsTheirRatesAre) {
  KernelModel model;
  model.us[{KernelKind::kProduct, Precision::kFP32}] = {3, 2, 10, 0, 0, 0, 0};
  model.us[{KernelKind::kProduct, Precision::kFP16}] = {2, 1, 4, 0, 0, 0, 0};
  Target target = target_with(model);
  EXPECT_DOUBLE_EQ(target.kernel_us(product_work(Precision::kBF16)), target.kernel_us(product_work(Precision::kFP16)));
  target.tflops[static_cast<std::size_t>(Precision::kTF32)] = 4 * target.rate(Precision::kFP32);
  EXPECT_DOUBLE_EQ(target.kernel_us(product_work(Precision::kTF32)), 3 + (1 + 20) / 4.0);
}

TEST(KernelModel, ConvolutionsInGroupsAreOthersToATargetWithoutTheKind) {
  KernelModel model;
  model.us[{KernelKind::kConvolution, Precision::kFP32}] = {3};
  KernelWork work{.kind = KernelKind::kGrouped, .precision = Precision::kFP16, .terms = {1}};
  EXPECT_DOUBLE_EQ(target_with(model).kernel_us(work), 3);
  model.us[{KernelKind::kGrouped, Precision::kFP32}] = {5};
  EXPECT_DOUBLE_EQ(target_with(model).kernel_us(work), 5);
}

TEST(KernelModel, WhatTheCacheDoesNotKeepTakesTheBandwidth) {
  Target target = target_with({});
  target.cached_mb = 10;
  target.bandwidth_gb_per_s = 500;
  KernelWork work = product_work(Precision::kFP16);  // 12 MB.
  EXPECT_DOUBLE_EQ(target.kernel_us(work), 2 * 1e3 / 500);
  work.terms[at(KernelTerm::kMb)] = 3;
  EXPECT_EQ(target.kernel_us(work), 0);
}

KernelKind kind_of_convolution(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t kernel,
                               std::int64_t groups, Precision p, std::vector<std::int64_t> dilations = {1, 1}) {
  testing::Model model;
  model.input("x", {1, in, side, side});
  *model.graph().add_initializer() =
      testing::float_tensor("w", {out, in / groups, kernel, kernel},
                            std::vector<float>(static_cast<std::size_t>(out * in / groups * kernel * kernel), 0.5f));
  model.node("Conv", {"x", "w"}, {"y"}, "conv");
  testing::add_attribute(*model.graph().mutable_node(0), "group", onnx::AttributeProto::INT).set_i(groups);
  auto& apart = testing::add_attribute(*model.graph().mutable_node(0), "dilations", onnx::AttributeProto::INTS);
  for (const std::int64_t dilation : dilations) apart.add_ints(dilation);
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{1, in, side, side}});
  return kernel_work(*spec, {GroupKind::kSingle, {network->find_layer("conv")}}, p, DataType::kFloat32, 1)->kind;
}

TEST(KernelWork, ConvolutionsAreOfTheKindOfKernelThatTakesThem) {
  EXPECT_EQ(kind_of_convolution(32, 8, 20, 3, 1, Precision::kFP16), KernelKind::kConvolution);
  EXPECT_EQ(kind_of_convolution(32, 8, 20, 3, 1, Precision::kINT8), KernelKind::kConvolution);
  EXPECT_EQ(kind_of_convolution(24, 8, 20, 3, 1, Precision::kFP16), KernelKind::kConvolution);
  EXPECT_EQ(kind_of_convolution(24, 8, 20, 3, 1, Precision::kINT8), KernelKind::kTiled);
  for (const auto& [in, out] : std::vector<std::pair<int, int>>{{30, 8}, {32, 20}, {4, 8}}) {
    EXPECT_EQ(kind_of_convolution(in, out, 20, 3, 1, Precision::kFP16), KernelKind::kIrregular) << in << " to " << out;
    EXPECT_EQ(kind_of_convolution(in, out, 20, 3, 1, Precision::kFP32), KernelKind::kConvolution)
        << in << " to " << out;
  }
  EXPECT_EQ(kind_of_convolution(3, 8, 20, 3, 1, Precision::kFP16), KernelKind::kConvolution) << "filled up";
  EXPECT_EQ(kind_of_convolution(32, 8, 20, 3, 1, Precision::kFP32, {1, 2}), KernelKind::kIrregular);
  EXPECT_EQ(kind_of_convolution(32, 8, 20, 3, 1, Precision::kINT8, {1, 2}), KernelKind::kConvolution);
  EXPECT_EQ(kind_of_convolution(16, 16, 20, 3, 16, Precision::kFP32), KernelKind::kDepthwise);
  EXPECT_EQ(kind_of_convolution(16, 16, 20, 3, 4, Precision::kFP32), KernelKind::kTiled);
  EXPECT_EQ(kind_of_convolution(32, 32, 20, 3, 4, Precision::kFP32), KernelKind::kGrouped);
  EXPECT_EQ(kind_of_convolution(32, 32, 8, 1, 4, Precision::kFP16), KernelKind::kGrouped);
  EXPECT_EQ(kind_of_convolution(32, 32, 20, 3, 4, Precision::kINT8), KernelKind::kTiled);
  EXPECT_EQ(kind_of_convolution(32, 8, 8, 1, 1, Precision::kFP32), KernelKind::kProduct) << "64 positions";
  EXPECT_EQ(kind_of_convolution(32, 8, 9, 1, 1, Precision::kFP32), KernelKind::kConvolution) << "81 positions";
}

/// Softmax(q k) v over so many keys, as one group.
KernelWork attention_over(std::int64_t keys) {
  testing::Model model;
  model.input("q", {2, 64, 32});
  model.input("k", {2, 32, keys});
  model.input("v", {2, keys, 32});
  model.node("MatMul", {"q", "k"}, {"scores"}, "scores");
  model.node("Softmax", {"scores"}, {"p"}, "softmax");
  model.node("MatMul", {"p", "v"}, {"y"}, "values");
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{2, 64, 32}, {2, 32, keys}, {2, keys, 32}});
  Group group{GroupKind::kAttention, {}};
  for (const char* name : {"scores", "softmax", "values"}) group.layers.push_back(network->find_layer(name));
  return *kernel_work(*spec, group, Precision::kFP16, DataType::kFloat16, 1);
}

TEST(KernelWork, AttentionOnManyKeysIsAKindOfItsOwn) {
  EXPECT_EQ(attention_over(384).kind, KernelKind::kAttention);
  EXPECT_EQ(attention_over(385).kind, KernelKind::kLong);
  KernelModel model;
  model.us[{KernelKind::kAttention, Precision::kFP16}] = {3};
  EXPECT_DOUBLE_EQ(target_with(model).kernel_us(attention_over(500)), 3) << "targets of before know one kind";
  model.us[{KernelKind::kLong, Precision::kFP16}] = {5};
  EXPECT_DOUBLE_EQ(target_with(model).kernel_us(attention_over(500)), 5);
  EXPECT_DOUBLE_EQ(target_with(model).kernel_us(attention_over(300)), 3);
}

KernelWork work_of_product(std::int64_t m, std::int64_t k, std::int64_t n, Precision p,
                           DataType stored = DataType::kFloat32) {
  testing::Model model;
  model.input("x", {m, k});
  *model.graph().add_initializer() =
      testing::float_tensor("w", {k, n}, std::vector<float>(static_cast<std::size_t>(k * n), 0.5f));
  model.node("MatMul", {"x", "w"}, {"y"}, "product");
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{m, k}});
  return *kernel_work(*spec, {GroupKind::kSingle, {network->find_layer("product")}}, p, stored, 1);
}

double product_us(const Target& target, std::int64_t m, std::int64_t k, std::int64_t n, Precision p,
                  DataType stored = DataType::kFloat32) {
  return target.kernel_us(work_of_product(m, k, n, p, stored));
}

TEST(KernelWork, IntegersInNoMultipleOfFourAreNoLibrarys) {
  EXPECT_EQ(work_of_product(5, 64, 36, Precision::kINT8).kind, KernelKind::kProduct);
  EXPECT_EQ(work_of_product(5, 64, 37, Precision::kINT8).kind, KernelKind::kTiled);
  EXPECT_EQ(work_of_product(5, 66, 36, Precision::kINT8).kind, KernelKind::kTiled);
  EXPECT_EQ(work_of_product(5, 66, 37, Precision::kFP16).kind, KernelKind::kProduct);
  KernelModel model;
  model.us[{KernelKind::kProduct, Precision::kINT8}] = {3};
  EXPECT_DOUBLE_EQ(product_us(target_with(model), 5, 66, 37, Precision::kINT8), 3) << "a target without the kind";
}

TEST(KernelWork, FewRowsReadTheBitsOfWeightsAlone) {
  const KernelWork few = work_of_product(8, 256, 512, Precision::kINT4Block32, DataType::kFloat16);
  EXPECT_EQ(few.kind, KernelKind::kNarrow);
  EXPECT_EQ(few.precision, Precision::kINT4Block32);
  EXPECT_DOUBLE_EQ(few.terms[at(KernelTerm::kWeightMb)], 256 * 512 * 4.5 / 8 * 1e-6) << "with scales in float16";
  EXPECT_EQ(few.terms[at(KernelTerm::kProgram)], 0);
  EXPECT_EQ(work_of_product(8, 256, 512, Precision::kNVFP4Weights, DataType::kBFloat16).kind, KernelKind::kNarrow);
  EXPECT_EQ(work_of_product(8, 256, 512, Precision::kFP16, DataType::kFloat16).kind, KernelKind::kProduct);
}

constexpr std::int64_t kSum = 1024, kColumns = 512;  // Large enough that a DequantizeLinear is not folded.

/// Of a row by codes of the file, with a scale per column or, with a block, per so many rows. `zeros`: of all scales,
/// in a byte each; one stands for all.
KernelWork work_of_codes(int type, std::int64_t block, std::vector<std::uint8_t> zeros = {}) {
  testing::Model model(21);
  model.input("x", {1, kSum});
  const bool packed = type == onnx::TensorProto::INT4 || type == onnx::TensorProto::UINT4;
  const auto add_codes = [&](const std::string& name, const testing::Dims& dims, const std::string& bytes) {
    auto& codes = *model.graph().add_initializer();
    codes.set_name(name);
    codes.set_data_type(type);
    for (const std::int64_t dim : dims) codes.add_dims(dim);
    codes.set_raw_data(bytes);
  };
  add_codes("codes", {kSum, kColumns}, std::string(kSum * kColumns / (packed ? 2 : 1), 1));
  const testing::Dims dims = block > 0 ? testing::Dims{kSum / block, kColumns} : testing::Dims{kColumns};
  const auto scales = static_cast<std::size_t>((block > 0 ? kSum / block : 1) * kColumns);
  *model.graph().add_initializer() = testing::float_tensor("scales", dims, std::vector<float>(scales, 0.5f));
  if (!zeros.empty()) {
    zeros.resize(scales, zeros[0]);
    std::string bytes;
    for (std::size_t i = 0; i < scales; i += packed ? 2 : 1)
      bytes += static_cast<char>(packed ? zeros[i] | zeros[i + 1] << 4 : zeros[i]);
    add_codes("zeros", dims, bytes);
  }
  auto& node = model.node("DequantizeLinear", {"codes", "scales"}, {"w"}, "dequantize");
  if (!zeros.empty()) node.add_input("zeros");
  testing::add_attribute(node, "axis", onnx::AttributeProto::INT).set_i(block > 0 ? 0 : 1);
  if (block > 0) testing::add_attribute(node, "block_size", onnx::AttributeProto::INT).set_i(block);
  model.node("MatMul", {"x", "w"}, {"y"}, "product");
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{1, kSum}});
  return *kernel_work(*spec, {GroupKind::kSingle, {network->find_layer("product")}}, Precision::kFP16,
                      DataType::kFloat16, 1);
}

/// Whatever makes them: 4 bits in blocks of 32, and bytes with a scale per column, that the file has.
TEST(KernelWork, FewRowsReadTheBitsOfTheFile) {
  const KernelWork few = work_of_codes(onnx::TensorProto::INT4, 32), wide = work_of_codes(onnx::TensorProto::INT4, 256),
                   bytes = work_of_codes(onnx::TensorProto::INT8, 0);
  for (const KernelWork& work : {few, wide, bytes}) EXPECT_EQ(work.kind, KernelKind::kNarrow);
  EXPECT_EQ(few.precision, Precision::kINT4Block32);
  EXPECT_EQ(wide.precision, Precision::kINT4);
  EXPECT_EQ(bytes.precision, Precision::kINT8Weights);
  EXPECT_DOUBLE_EQ(few.terms[at(KernelTerm::kWeightMb)], kSum * kColumns * 4.5 / 8 * 1e-6);
}

/// Numbers without a sign around the middle are those with one; the kernel knows no other zero points, nor blocks that
/// are no whole words.
TEST(KernelWork, FewRowsReadTheBitsOfTheFileWhereZeroPointsLeaveIntegersWithASign) {
  using onnx::TensorProto;
  const KernelWork four = work_of_codes(TensorProto::UINT4, 32, {8}),
                   eight = work_of_codes(TensorProto::UINT8, 0, {128});
  for (const KernelWork& work : {four, eight}) EXPECT_EQ(work.kind, KernelKind::kNarrow);
  EXPECT_EQ(four.precision, Precision::kINT4Block32);
  EXPECT_EQ(eight.precision, Precision::kINT8Weights);
  for (const KernelWork& other :
       {work_of_codes(TensorProto::UINT4, 32), work_of_codes(TensorProto::UINT4, 32, {8, 7}),
        work_of_codes(TensorProto::INT4, 32, {1}), work_of_codes(TensorProto::INT4, 32, {0, 1}),
        work_of_codes(TensorProto::INT8, 0, {0, 1}), work_of_codes(TensorProto::INT4, 8)}) {
    EXPECT_EQ(other.kind, KernelKind::kProduct);
    EXPECT_EQ(other.precision, Precision::kFP16);
  }
}

TEST(KernelWork, OtherProductsReadWeightsThatAreDequantizedBefore) {
  const auto is_of_float = [](const KernelWork& work, Precision p, double bytes) {
    EXPECT_EQ(work.kind, KernelKind::kProduct);
    EXPECT_EQ(work.precision, p);
    EXPECT_DOUBLE_EQ(work.terms[at(KernelTerm::kWeightMb)] * 1e6, bytes);
  };
  is_of_float(work_of_product(9, 256, 512, Precision::kINT4, DataType::kFloat16), Precision::kFP16, 2 * 256 * 512);
  is_of_float(work_of_product(8, 248, 512, Precision::kINT4, DataType::kFloat16), Precision::kFP16, 2 * 248 * 512);
  is_of_float(work_of_product(8, 256, 512, Precision::kINT4, DataType::kFloat32), Precision::kFP32, 4 * 256 * 512);
}

TEST(KernelModel, WeightsInOtherBlocksTakeTheFactorsOfTheirElements) {
  KernelModel model;
  model.us[{KernelKind::kProduct, Precision::kFP16}] = {7};
  const auto us = [&](Precision p) { return product_us(target_with(model), 1, 256, 512, p, DataType::kFloat16); };
  EXPECT_DOUBLE_EQ(us(Precision::kINT4Block64), 7) << "a target of before knows no such kernel";
  model.us[{KernelKind::kNarrow, Precision::kINT4}] = {2};
  model.us[{KernelKind::kNarrow, Precision::kFP8Weights}] = {3};
  EXPECT_DOUBLE_EQ(us(Precision::kINT4Block64), 2);
  EXPECT_DOUBLE_EQ(us(Precision::kMXFP8Weights), 3);
  EXPECT_DOUBLE_EQ(us(Precision::kNVFP4Weights), 7);
}

/// relu(x w) w, with weights alone in int4 beside fp16.
TEST(TimeModel, ProductsByElementsOfWeightsReadWhatOthersStore) {
  testing::Model model;
  model.input("x", {16, 256});
  *model.graph().add_initializer() = testing::float_tensor("w", {256, 256}, std::vector<float>(256 * 256, 0.5f));
  model.node("MatMul", {"x", "w"}, {"a"}, "first");
  model.node("Softmax", {"a"}, {"p"}, "softmax");
  model.node("MatMul", {"p", "w"}, {"y"}, "second");
  model.output("y");
  const auto network = model.load();
  const auto spec = specialize(*network, {{16, 256}});
  for (const bool modelled : {true, false}) {
    Target target = target_with(full_model());
    if (!modelled) target.kernels = nullptr;
    const TimeModel time(*spec, Fusion::kFull, target);
    const auto casts = [&](PrecisionSet enabled) {
      BuildOptions build;
      build.enabled = enabled;
      build.assume_lowest = true;
      return time.casts(assign_precisions(*spec, build)).count;
    };
    EXPECT_EQ(casts({Precision::kINT4, Precision::kFP16}), casts({Precision::kFP16}));
    EXPECT_EQ(casts({Precision::kINT4}), 0);
  }
  const CostProblem problem =
      make_cost_problem(*spec, fuse(*spec, assign_precisions(*spec, {}), Fusion::kNone), target_with(full_model()),
                        IdMap<LayerId, std::vector<Precision>>(network->layers.size(),
                                                               {Precision::kINT4, Precision::kFP16, Precision::kFP32}));
  EXPECT_EQ(problem.storage(0, 0), DataType::kFloat16);
}

TEST(KernelWork, LargerProductsTakeLonger) {
  const Target target = target_with(full_model());
  for (const Precision p : {Precision::kFP32, Precision::kFP16, Precision::kINT8}) {
    double before = 0;
    for (const std::int64_t size : {16, 32, 64, 128, 256}) {
      const double us = product_us(target, size, size, size, p);
      EXPECT_GT(us, before) << name_of(p) << " " << size;
      EXPECT_GT(product_us(target, 2 * size, size, size, p), us) << name_of(p) << " " << size;
      EXPECT_GT(product_us(target, size, 2 * size, size, p), us) << name_of(p) << " " << size;
      EXPECT_GT(product_us(target, size, size, 2 * size, p), us) << name_of(p) << " " << size;
      before = us;
    }
  }
}

TEST(TimeModel, LaunchesAreWhatKernelsTakeHoweverLittleTheyCompute) {
  const Target target = target_with(full_model());  // Products: a call of 2 us; a run: 3 us.
  for (const auto& [side, share] : {std::pair(2.0, 5 / 5.3), std::pair(512.0, 5 / 12.2)}) {
    const auto n = static_cast<std::int64_t>(side);
    testing::Model model;
    model.input("x", {n, n});
    *model.graph().add_initializer() =
        testing::float_tensor("w", {n, n}, std::vector<float>(static_cast<std::size_t>(n * n), 0.5f));
    model.node("MatMul", {"x", "w"}, {"y"}, "product");
    model.output("y");
    const auto network = model.load();
    const auto spec = specialize(*network, {{n, n}});
    const TimeModel time(*spec, Fusion::kFull, target);
    const Assignment assignment = assign_precisions(*spec, BuildOptions());
    EXPECT_NEAR(time.launch_share(assignment) * time(assignment), 5, 1e-9) << side;
    EXPECT_NEAR(time.launch_share(assignment), share, 0.1 * share) << side;
  }
}

/// Times of probes as a target has them.
ProbeTimes told_by(const Target& target, int probes) {
  ProbeTimes times;
  for (int probe = 0; probe < probes; ++probe)
    for (const PrecisionSet& precisions :
         {PrecisionSet{}, PrecisionSet{Precision::kFP16}, PrecisionSet{Precision::kINT8}}) {
      times.times.push_back({probe, precisions, false, 0});
      times.times.back().us = estimate_probe(times.times.back(), target);
    }
  return times;
}

TEST(FitKernels, FindsTheFactorsThatTimesWereMadeOf) {
  const Target told = target_with(full_model());
  const Target fitted = target_with(fit_kernels(told_by(told, 64), told));
  EXPECT_EQ(fitted.kernels->networks, 3 * 64);
  EXPECT_LT(fitted.kernels->median_error, 0.01);
  for (const Precision p : {Precision::kFP32, Precision::kFP16, Precision::kINT8}) {
    const double wanted = told.kernels->us.at({KernelKind::kProduct, p})[at(KernelTerm::kGop)];
    EXPECT_NEAR(fitted.kernels->us.at({KernelKind::kProduct, p})[at(KernelTerm::kGop)], wanted, 0.1 * wanted)
        << name_of(p);
  }
  for (int probe = 64; probe < 80; ++probe) {
    const ProbeTime unseen{probe, PrecisionSet{Precision::kFP16}, true, 0};
    const double wanted = estimate_probe(unseen, told);
    EXPECT_NEAR(estimate_probe(unseen, fitted), wanted, 0.05 * wanted) << kernel_probe(probe).name;
  }
}

TEST(FitKernels, OneTimeFarOffChangesLittle) {
  const Target told = target_with(full_model());
  ProbeTimes times = told_by(told, 48);
  times.times[4].us *= 20;
  const Target fitted = target_with(fit_kernels(times, told));
  const ProbeTime unseen{50, PrecisionSet{}, false, 0};
  const double wanted = estimate_probe(unseen, told);
  EXPECT_NEAR(estimate_probe(unseen, fitted), wanted, 0.1 * wanted);
}

TEST(FitKernels, RefusesTooFewTimes) {
  const Target target = target_with(full_model());
  try {
    fit_kernels(told_by(target, 2), target);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("expected times of 20 networks or more, got 6"));
  }
}

TEST(ProbeTimes, AreTheSameBehindAFile) {
  ProbeTimes times = told_by(target_with(full_model()), 2);
  times.origin = {"ulpscope 0.1.0", "2026-11-27", "cuda", "NVIDIA H100", 0, {{"driver", "13.0"}}};
  times.times[1].mixed = true;
  const ProbeTimes read = probe_times_from_json(probe_times_to_json(times), "here");
  EXPECT_EQ(read.origin.device, "NVIDIA H100");
  EXPECT_EQ(read.origin.libraries, times.origin.libraries);
  ASSERT_EQ(read.times.size(), times.times.size());
  for (std::size_t i = 0; i < read.times.size(); ++i) {
    EXPECT_EQ(read.times[i].probe, times.times[i].probe);
    EXPECT_EQ(read.times[i].precisions, times.times[i].precisions);
    EXPECT_EQ(read.times[i].mixed, times.times[i].mixed);
    EXPECT_NEAR(read.times[i].us, times.times[i].us, 1e-4 * times.times[i].us);
  }
}

TEST(ProbeTimes, FilesThatMakeNoSenseAreNamed) {
  const auto message = [](const std::string& times, const std::string& format = "ulpscope-probe-times") {
    const std::string text = "{\"format\": \"" + format +
                             "\", \"version\": 1, \"measured\": {\"program\": \"\", \"date\": \"\", "
                             "\"backend\": \"cuda\", \"device\": \"\", \"libraries\": {}}, \"times\": " +
                             times + "}";
    try {
      probe_times_from_json(text, "shapes.json");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidFile);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("[]"), "");
  EXPECT_THAT(message("[]", "ulpscope-target"),
              HasSubstr("'shapes.json': expected the format \"ulpscope-probe-times\""));
  EXPECT_THAT(message(R"([{"probe": 1, "precisions": [], "us": 0}])"),
              HasSubstr("times[0].us: expected a number above 0"));
  EXPECT_THAT(message(R"([{"probe": -1, "precisions": [], "us": 1}])"),
              HasSubstr("times[0].probe: expected the number of a probe"));
  EXPECT_THAT(message(R"([{"probe": 1, "precisions": ["fp17"], "us": 1}])"), HasSubstr("got 'fp17'"));
  EXPECT_THAT(message(R"([{"precisions": [], "us": 1}])"), HasSubstr("the key \"probe\""));
}

TEST(TargetFile, KeepsAModelOfKernels) {
  const Target written = target_with(full_model());
  const Target read = target_from_json(target_to_json(written), "here");
  ASSERT_NE(read.kernels, nullptr);
  EXPECT_EQ(read.kernels->networks, 240);
  EXPECT_EQ(read.kernels->median_error, 0.06);
  EXPECT_EQ(read.kernels->large_error, 0.28);
  ASSERT_EQ(read.kernels->us.size(), written.kernels->us.size());
  for (const auto& [kernel, factors] : written.kernels->us)
    for (std::size_t t = 0; t < kKernelTerms; ++t)
      EXPECT_NEAR(read.kernels->us.at(kernel)[t], factors[t], 5e-4 * factors[t])  // Four digits are written.
          << name_of(kernel.first) << " " << name_of(kernel.second) << " " << name_of(static_cast<KernelTerm>(t));
  EXPECT_EQ(target_to_json(read), target_to_json(written));
}

TEST(Target, ThoseThatWereNotMeasuredTakeTheCurvesOfTheH100) {
  const Target h100 = find_target("h100");
  ASSERT_NE(h100.kernels, nullptr);
  EXPECT_EQ(h100.kernels->of, "");
  EXPECT_GT(h100.kernels->networks, 200);
  for (const std::string name : {"h200", "b200", "a100", "l40s", "l4", "t4", "rtx4090", "orin"}) {
    const Target target = find_target(name);
    ASSERT_NE(target.kernels, nullptr) << name;
    if (target.kernels->of.empty()) continue;
    EXPECT_EQ(target.kernels->of, "h100") << name;
    EXPECT_GT(target.processors, 0) << name;
    const double ratio = h100.rate(Precision::kFP32) / target.rate(Precision::kFP32);
    const auto gop = [](const Target& each) {
      return each.kernels->us.at({KernelKind::kProduct, Precision::kFP32})[at(KernelTerm::kGop)];
    };
    EXPECT_NEAR(gop(target), ratio * gop(h100), 1e-9) << name;
  }
}

}  // namespace
}  // namespace ulpscope
