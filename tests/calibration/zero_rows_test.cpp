// Where rows of zeros are possible, by what makes a tensor.
#include "calibration/zero_rows.h"

#include <gtest/gtest.h>

#include "onnx/model_builder.h"

namespace ulpscope::testing {
namespace {

/// Values of three embeddings of four numbers, of which `zeros` are 0 at the second.
struct Decoder {
  explicit Decoder(bool zeros = false) {
    std::vector<float> table{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    if (zeros) std::fill_n(table.begin() + 4, 4, 0.0f);
    model.input("ids", {5}, onnx::TensorProto::INT64);
    model.input("x", {5, 4});
    constant("table", {3, 4}, table);
    constant("w", {4, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    constant("bias", {4}, {1, 1, 1, 1});
    model.node("Gather", {"table", "ids"}, {"embedded"});
    model.node("MatMul", {"embedded", "w"}, {"product"});
    model.node("Relu", {"product"}, {"relu"});
    model.node("Add", {"embedded", "relu"}, {"residual"});
    model.node("Mul", {"residual", "residual"}, {"square"});
    model.node("Add", {"relu", "relu"}, {"sum"});
    model.node("Add", {"relu", "bias"}, {"biased"});
    model.node("MatMul", {"x", "w"}, {"of_input"});
    model.node("Softmax", {"relu"}, {"softmax"});
    model.node("Mul", {"embedded", "relu"}, {"gated"});
    model.node("Tanh", {"relu"}, {"tanh"});
    for (const char* output : {"square", "sum", "biased", "of_input", "softmax", "gated", "tanh"}) model.output(output);
    network = model.load();
    spec = specialize(*network, {{5}, {5, 4}});
  }
  void constant(const char* name, const Dims& dims, const std::vector<float>& values) {
    *model.graph().add_initializer() = float_tensor(name, dims, values);
  }
  bool possible(const char* name) const { return ZeroRows(*spec).possible(network->find_tensor(name)); }

  Model model;
  std::shared_ptr<Network> network;
  std::shared_ptr<const Specialization> spec;
};

TEST(ZeroRows, AreWhatClampsMake) {
  const Decoder decoder;
  for (const char* name : {"relu", "sum", "gated", "tanh"}) EXPECT_TRUE(decoder.possible(name)) << name;
}

TEST(ZeroRows, AreNotWhereSomethingIsAlwaysThere) {
  const Decoder decoder;
  for (const char* name : {"embedded", "product", "residual", "square", "biased", "softmax", "x", "of_input"})
    EXPECT_FALSE(decoder.possible(name)) << name;
}

TEST(ZeroRows, AreThoseOfATable) {
  const Decoder decoder(true);
  for (const char* name : {"embedded", "product", "residual", "square"}) EXPECT_TRUE(decoder.possible(name)) << name;
}

}  // namespace
}  // namespace ulpscope::testing
