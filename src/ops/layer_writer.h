// Writes layers into networks that the program makes itself: probes of a target, differences, sums of errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// Appends float32 layers of ai.onnx. A layer has the name that it is given, or one of its own ("Relu_7"), and so has
/// its output; of several outputs each has a number behind it.
class LayerWriter {
 public:
  using Attributes = std::vector<std::pair<std::string, Attribute>>;
  using Ids = std::vector<TensorId>;
  using Ints = std::vector<std::int64_t>;

  /// `network` outlives it. `opset`: of the layers.
  LayerWriter(Network& network, int opset) : network_(network), opset_(opset) {}

  TensorId input(std::string name, const Shape& shape, DataType type = DataType::kFloat32);
  /// What its readers prepare with themselves. One value for each name: the first.
  TensorId initializer(const std::string& name, Tensor value);
  /// What any layer reads: a layer of its own.
  TensorId constant(const Tensor& value);

  Ids layer(std::string_view op, Ids inputs, int outputs, Attributes attributes = {}, std::string name = {});

  TensorId add(TensorId a, TensorId b) { return one("Add", {a, b}); }
  TensorId subtract(TensorId a, TensorId b, std::string name = {}) { return one("Sub", {a, b}, {}, std::move(name)); }
  TensorId multiply(TensorId a, TensorId b, std::string name = {}) { return one("Mul", {a, b}, {}, std::move(name)); }
  TensorId product(TensorId a, TensorId b) { return one("MatMul", {a, b}); }
  TensorId negate(TensorId x) { return one("Neg", {x}); }
  TensorId relu(TensorId x) { return one("Relu", {x}); }
  TensorId sigmoid(TensorId x) { return one("Sigmoid", {x}); }
  TensorId hard_swish(TensorId x) { return one("HardSwish", {x}); }
  TensorId gelu(TensorId x) { return one("Gelu", {x}); }
  TensorId softmax(TensorId x) { return one("Softmax", {x}, {{"axis", std::int64_t{-1}}}); }
  TensorId clip(TensorId x, TensorId low, TensorId high, std::string name = {}) {
    return one("Clip", {x, low, high}, {}, std::move(name));
  }
  /// To float32.
  TensorId widen(TensorId x, std::string name) { return one("Cast", {x}, {{"to", std::int64_t{1}}}, std::move(name)); }
  TensorId reshape(TensorId x, TensorId shape, std::string name = {}) {
    return one("Reshape", {x, shape}, {}, std::move(name));
  }
  /// [n, c, h, w] as [n, h, w, c].
  TensorId channels_last(TensorId x) { return transpose(x, {0, 2, 3, 1}); }
  TensorId transpose(TensorId x, Ints order) { return one("Transpose", {x}, {{"perm", std::move(order)}}); }
  TensorId concat(Ids parts, std::int64_t axis, std::string name = {}) {
    return one("Concat", std::move(parts), {{"axis", axis}}, std::move(name));
  }
  Ids halves(TensorId x, std::int64_t axis) {
    return layer("Split", {x}, 2, {{"axis", axis}, {"num_outputs", std::int64_t{2}}});
  }
  TensorId layer_norm(TensorId x, TensorId scale, TensorId bias) {
    return one("LayerNormalization", {x, scale, bias}, {{"axis", std::int64_t{-1}}});
  }
  TensorId convolve(Ids operands, Attributes attributes) {
    return one("Conv", std::move(operands), std::move(attributes));
  }
  TensorId lstm(Ids operands, Attributes attributes) { return one("LSTM", std::move(operands), std::move(attributes)); }
  TensorId max_pool(TensorId x, Attributes attributes) { return one("MaxPool", {x}, std::move(attributes)); }
  TensorId average_pool(TensorId x, Attributes attributes) { return one("AveragePool", {x}, std::move(attributes)); }
  TensorId resize(TensorId x, TensorId scales, std::string mode) {
    return one("Resize", {x, kNone, scales}, {{"mode", std::move(mode)}});
  }
  TensorId mean(TensorId x, TensorId axes, bool keep) {
    return one("ReduceMean", {x, axes}, {{"keepdims", std::int64_t{keep}}});
  }
  /// Along the axes, which stay with a length of 1.
  TensorId sum(TensorId x, TensorId axes, std::string name) { return one("ReduceSum", {x, axes}, {}, std::move(name)); }
  TensorId sum_magnitudes(TensorId x, TensorId axes, std::string name) {
    return one("ReduceL1", {x, axes}, {}, std::move(name));
  }
  /// Of all elements: a scalar.
  TensorId sum_squares(TensorId x, std::string name) {
    return one("ReduceSumSquare", {x}, {{"keepdims", std::int64_t{0}}}, std::move(name));
  }

 private:
  TensorId one(std::string_view op, Ids inputs, Attributes attributes = {}, std::string name = {}) {
    return layer(op, std::move(inputs), 1, std::move(attributes), std::move(name))[0];
  }

  Network& network_;
  const int opset_;
};

}  // namespace ulpscope
