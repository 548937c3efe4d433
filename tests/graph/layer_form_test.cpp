// The table of precisions, and what layers are asked for in its words.
#include "graph/layer_form.h"

#include <gtest/gtest.h>

#include "graph/assignment.h"
#include "graph/network_builder.h"

namespace ulpscope::testing {
namespace {

TEST(LayerForms, NamesRequestsAndTypesLeadBackToThePrecision) {
  ASSERT_EQ(layer_forms().size(), kPrecisionCount);
  for (const LayerForm& form : layer_forms()) {
    EXPECT_EQ(precision_named(form.name), form.precision);
    EXPECT_EQ(request_named(form.name), Request(form.precision)) << form.name;
    EXPECT_EQ(request_named(Request(form.precision).name()), Request(form.precision)) << form.name;
    if (form.type != DataType::kUndefined) {
      EXPECT_EQ(Request(form.type), Request(form.precision)) << form.name;
    }
    EXPECT_EQ(form.is_float(), form.stored != DataType::kUndefined) << form.name;
    EXPECT_EQ(form.is_of_weights() || form.is_quantized(), !form.is_float()) << form.name;
  }
  EXPECT_EQ(precision_from_type(DataType::kUndefined), std::nullopt) << "tf32 has no type, and no type means it";
  EXPECT_EQ(Request(DataType::kInt64).precision(), std::nullopt);
  EXPECT_EQ(Request(DataType::kInt64).name(), "int64");
  EXPECT_EQ(request_named("float17"), std::nullopt);
}

TEST(LayerForms, ListsHaveTheirWords) {
  EXPECT_EQ(precision_list(" or "),
            "fp32, tf32, fp16, bf16, fp8, int8, mxfp8, nvfp4, mxfp4, int8-weights, fp8-weights, mxfp8-weights, "
            "nvfp4-weights, mxfp4-weights, int4, int4-64 or int4-32");
  EXPECT_EQ(precision_list(" and ", is_rung), "fp32, tf32, fp16 and bf16");
}

TEST(LayerForms, BytesAreThoseOfOperands) {
  const LayerForm &int8 = form_of(Precision::kINT8), &tf32 = form_of(Precision::kTF32);
  EXPECT_EQ(int8.bytes(int8.weight), 1);
  EXPECT_EQ(tf32.bytes(tf32.activation), 4);
  const auto weight_bits = [](Precision p) { return 8 * form_of(p).bytes(form_of(p).weight); };
  EXPECT_EQ(weight_bits(Precision::kNVFP4), 4.5);
  EXPECT_EQ(weight_bits(Precision::kMXFP8), 8.25);
  EXPECT_EQ(weight_bits(Precision::kINT4Block64), 4.25);
  EXPECT_EQ(form_of(Precision::kINT4).bytes(form_of(Precision::kINT4).activation), 2);
  EXPECT_EQ(int8.read_type(), DataType::kInt8);
  EXPECT_EQ(tf32.read_type(), DataType::kFloat32);
}

TEST(LayerForms, WeightsAloneAndBlocksAreFormsOfTheirOwn) {
  EXPECT_EQ(weights_alone(Precision::kNVFP4), Precision::kNVFP4Weights);
  EXPECT_EQ(weights_alone(Precision::kINT8), Precision::kINT8Weights);
  EXPECT_EQ(weights_alone(Precision::kFP16), Precision::kFP16);
  EXPECT_EQ(weights_alone(Precision::kINT4), Precision::kINT4);
  EXPECT_EQ(int4_in_blocks(64), Precision::kINT4Block64);
  EXPECT_EQ(int4_in_blocks(48), std::nullopt);
  EXPECT_EQ(form_of(Precision::kINT4Block64).flag(), "--int4 --block-size 64");
  EXPECT_EQ(form_of(Precision::kFP8Weights).flag(), "--fp8 --weights-only");
  EXPECT_TRUE(with_smaller_blocks({Precision::kINT4}).has(Precision::kINT4Block64));
  EXPECT_FALSE(with_smaller_blocks({Precision::kINT8}).has(Precision::kINT4Block64));
}

TEST(PrecisionSet, KeepsItsMembersInOrder) {
  PrecisionSet set{Precision::kINT8, Precision::kFP16};
  EXPECT_TRUE(set.has(Precision::kFP16) && set.has_quantized() && !set.has(Precision::kFP32));
  EXPECT_EQ(set.members(), (std::vector{Precision::kFP16, Precision::kINT8}));
  set.set(Precision::kINT8, false);
  EXPECT_FALSE(set.has_quantized());
  EXPECT_EQ(set, PrecisionSet{Precision::kFP16});
}

TEST(Requests, LeaveTypesThatOnlyHoldValues) {
  NetworkBuilder builder;
  builder.input("x", DataType::kFloat8E8M0);
  builder.weight("shape", Tensor::of<std::int64_t>({1}, {4}));
  Layer& reshape = builder.layer("Reshape", {"x", "shape"}, {"y"}, "reshape");
  reshape.precision = DataType::kFloat16;  // a request that would round them
  Assignment assignment;
  assignment.precision.assign(1, Precision::kFP32);
  derive_storage(builder.network, infer(builder.network, {{2, 2}}), true, false, assignment);
  EXPECT_EQ(assignment.storage[TensorId(2)], DataType::kFloat8E8M0);
}

}  // namespace
}  // namespace ulpscope::testing
