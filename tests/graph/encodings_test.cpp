// What an assignment says about the operands and outputs of a layer.
#include <gtest/gtest.h>

#include "graph/assignment.h"
#include "graph/network_builder.h"

namespace ulpscope::testing {
namespace {

struct Case {
  NetworkBuilder builder;
  Assignment assignment;

  Case() {
    builder.input("x");
    builder.input("wide", DataType::kFloat64);
    builder.weight("w", Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
    builder.weight("shape", Tensor::of<std::int64_t>({1}, {4}));
    builder.layer("MatMul", {"x", "w"}, {"product"}, "matmul");
    builder.layer("Reshape", {"product", "shape"}, {"flat"}, "reshape");
    builder.layer("Relu", {"flat"}, {"y"}, "relu");
    const std::size_t layers = builder.network.layers.size();
    assignment.precision.assign(layers, Precision::kFP32);
    for (const TensorInfo& info : builder.network.tensors)
      assignment.storage.push_back(info.type == DataType::kUndefined ? DataType::kFloat32 : info.type);
  }
  void store(const std::string& tensor, DataType type) {
    assignment.storage[builder.network.find_tensor(tensor)] = type;
  }
  std::string operand(int layer, std::size_t i) const {
    const auto encoding = operand_encoding(builder.network, assignment, LayerId(layer), i);
    return encoding ? to_string(*encoding) : "none";
  }
  std::string output(int layer) const {
    const auto encoding = output_encoding(builder.network, assignment, LayerId(layer), 0);
    return encoding ? to_string(*encoding) : "none";
  }
};

TEST(Encodings, OfFloatLayers) {
  Case c;
  EXPECT_EQ(c.operand(0, 0), "fp32");
  c.assignment.precision = IdMap<LayerId, Precision>({Precision::kTF32, Precision::kFP32, Precision::kTF32});
  EXPECT_EQ(c.operand(0, 1), "tf32");
  EXPECT_EQ(c.operand(2, 0), "fp32") << "tf32 concerns products alone";
  c.assignment.precision = IdMap<LayerId, Precision>({Precision::kFP16, Precision::kFP32, Precision::kBF16});
  c.store("product", DataType::kFloat16);
  c.store("flat", DataType::kFloat16);
  c.store("y", DataType::kBFloat16);
  EXPECT_EQ(c.operand(0, 0), "fp16") << "rounded when it is read";
  EXPECT_EQ(c.output(0), "fp16");
  EXPECT_EQ(c.operand(1, 0), "fp16") << "what moves values reads them as they are stored";
  EXPECT_EQ(c.operand(1, 1), "none");
  EXPECT_EQ(c.operand(2, 0), "bf16");
  EXPECT_EQ(c.output(2), "bf16");
  EXPECT_EQ(c.operand(2, 1), "none");
  c.assignment.precision[LayerId(0)] = Precision::kTF32;
  c.store("x", DataType::kFloat16);
  EXPECT_EQ(c.operand(0, 0), "fp16") << "tf32 holds what is stored";
}

TEST(Encodings, OfInt8Layers) {
  Case c;
  c.assignment.precision[LayerId(0)] = Precision::kINT8;
  c.assignment.scale.assign(c.builder.network.tensors.size(), 0.0f);
  c.assignment.scale[c.builder.network.find_tensor("x")] = 0.5f;
  EXPECT_EQ(c.operand(0, 0), "int8 * fp32 per tensor");
  EXPECT_EQ(c.operand(0, 1), "int8 * fp32 per channel");
  EXPECT_EQ(c.output(0), "fp32");
}

TEST(Encodings, TypesThatOnlyHoldValuesKeepTheirs) {
  NetworkBuilder builder;
  builder.input("x", DataType::kFloat8E8M0);
  builder.weight("shape", Tensor::of<std::int64_t>({1}, {4}));
  Layer& reshape = builder.layer("Reshape", {"x", "shape"}, {"y"}, "reshape");
  reshape.precision = DataType::kFloat16;  // a request that would round them
  Assignment assignment;
  assignment.precision.assign(1, Precision::kFP32);
  derive_storage(builder.network, infer(builder.network, {{2, 2}}), true, false, assignment);
  EXPECT_EQ(assignment.storage[TensorId(2)], DataType::kFloat8E8M0);
  EXPECT_EQ(operand_encoding(builder.network, assignment, LayerId(0), 0)->format, Format::kFloat8E8M0);
}

}  // namespace
}  // namespace ulpscope::testing
