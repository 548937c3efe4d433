// Random networks of the usual layers, the same for the same seed.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/inference.h"
#include "graph/network_builder.h"

namespace ulpscope::testing {

/// Layers of products, convolutions, pooling, reductions, normalization, softmax, movement and arithmetic, in random
/// order and with shared values. Values stay small enough for float16.
class RandomNetwork {
 public:
  explicit RandomNetwork(std::uint32_t seed, int layers = 14) : random_(seed) {
    add_input("image", {2, 4, 6, 5});
    add_input("tokens", {2, 5, 8});
    while (count_ < layers) add_step();
    IdMap<TensorId, char> read(builder_.network.tensors.size(), 0);
    for (const Layer& layer : builder_.network.layers)
      for (TensorId input : present(layer.inputs)) read[input] = 1;
    for (const Value& value : values_) {
      const TensorId id = builder_.network.find_tensor(value.name);
      if (builder_.network.tensor(id).producer != kNone && (!read[id] || pick(6) == 0)) builder_.output(value.name);
    }
    infer_types(builder_.network);
    builder_.network.name = "random";
    builder_.network.check();
  }

  Network& network() { return builder_.network; }
  std::shared_ptr<const Network> shared() const { return std::make_shared<const Network>(builder_.network); }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  std::vector<Shape> input_shapes() const { return {inputs_[0].shape(), inputs_[1].shape()}; }

 private:
  struct Value {
    std::string name;
    Shape shape;
  };

  std::size_t pick(std::size_t count) { return random_() % count; }

  Tensor values_of(const Shape& shape, float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    Tensor result(DataType::kFloat32, shape);
    for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = uniform(random_);
    return result;
  }

  void add_input(const std::string& name, const Shape& shape) {
    builder_.input(name);
    builder_.network.tensor(builder_.tensor(name)).shape = shape;
    values_.push_back({name, shape});
    inputs_.push_back(values_of(shape, -2, 2));
  }

  std::string weight(const Shape& shape, float low, float high) {
    const std::string name = fmt::format("w{}", weights_++);
    builder_.weight(name, values_of(shape, low, high));
    return name;
  }
  std::string integers(std::vector<std::int64_t> values) {
    const std::string name = fmt::format("i{}", weights_++);
    builder_.weight(name, Tensor::of<std::int64_t>({static_cast<std::int64_t>(values.size())},
                                                   std::span<const std::int64_t>(values)));
    return name;
  }
  /// A scalar, which is a Constant layer.
  std::string scalar(float low, float high) {
    const std::string name = fmt::format("c{}", weights_++);
    builder_.constant(name, values_of({}, low, high));
    return name;
  }

  Layer& add(const std::string& op, const std::vector<std::string>& inputs, const Shape& shape) {
    const std::string name = op + "_" + std::to_string(count_++);
    values_.push_back({name + "_out", shape});
    return builder_.layer(op, inputs, {name + "_out"}, name);
  }

  const Value& any() {
    // Mostly recent values, so that chains come up.
    const std::size_t window = pick(3) == 0 ? values_.size() : std::min<std::size_t>(values_.size(), 4);
    return values_[values_.size() - 1 - pick(window)];
  }

  void add_step() {
    const Value x = any();
    const std::size_t rank = x.shape.size();
    switch (pick(14)) {
      case 0:
      case 1:
        return add_unary(x);
      case 2:
      case 3:
        return add_binary(x);
      case 4:
        return add_product(x);
      case 5:
        return rank == 4 ? add_convolution(x) : add_product(x);
      case 6:
        return rank == 4 ? add_pooling(x) : add_row_pattern(x);
      case 7:
      case 8:
        return add_row_pattern(x);
      case 9:
        return add_normalization(x);
      case 10:
        return add_concat(x);
      case 11:
      case 12:
        return add_movement(x);
      default:
        return rank == 4 ? add_convolution(x) : add_attention(x);
    }
  }

  void add_unary(const Value& x) {
    static const std::vector<std::string> kOps{"Relu", "Tanh",      "Sigmoid",   "Neg", "Abs",
                                               "Erf",  "LeakyRelu", "HardSwish", "Elu", "Softplus"};
    add(kOps[pick(kOps.size())], {x.name}, x.shape);
  }

  void add_binary(const Value& x) {
    static const std::vector<std::string> kOps{"Add", "Sub", "Mul", "Max", "Min"};
    std::string other;
    for (const Value& value : values_)
      if (value.shape == x.shape && (other.empty() || pick(2) == 0)) other = value.name;
    const std::size_t form = pick(4);
    if (form == 0) return void(add("Div", {x.name, scalar(1, 3)}, x.shape));
    if (form == 1) other = weight({x.shape.back()}, -1, 1);
    if (form == 2) other = scalar(-1, 1);
    const std::string op = kOps[pick(kOps.size())];
    // A product of two values grows; a bounded one does not.
    if (op == "Mul" && form == 3) {
      add("Tanh", {x.name}, x.shape);
      other = values_.back().name;
    }
    if (pick(2) == 0)
      add(op, {x.name, other}, x.shape);
    else
      add(op, {other, x.name}, x.shape);
  }

  void add_product(const Value& x) {
    const std::int64_t k = x.shape.back(), n = 3 + static_cast<std::int64_t>(pick(6));
    Shape shape = x.shape;
    shape.back() = n;
    if (x.shape.size() == 2 && pick(2) == 0) {
      Layer& gemm = add("Gemm", {x.name, weight({n, k}, -0.5, 0.5), weight({n}, -1, 1)}, shape);
      gemm.attributes.set("transB", std::int64_t{1});
      return;
    }
    add("MatMul", {x.name, weight({k, n}, -0.5, 0.5)}, shape);
    if (pick(2) == 0) add("Add", {values_.back().name, weight({n}, -1, 1)}, shape);
  }

  void add_convolution(const Value& x) {
    const std::int64_t channels = x.shape[1], out = channels % 2 == 0 ? 4 : 3;
    const bool depthwise = pick(3) == 0;
    const std::int64_t kernel = x.shape[2] >= 3 && x.shape[3] >= 3 && pick(2) == 0 ? 3 : 1;
    const std::int64_t made = depthwise ? channels : out;
    Shape shape{x.shape[0], made, x.shape[2], x.shape[3]};
    std::vector<std::string> inputs{x.name, weight({made, depthwise ? 1 : channels, kernel, kernel}, -0.4f, 0.4f)};
    if (pick(2) == 0) inputs.push_back(weight({made}, -1, 1));
    Layer& conv = add("Conv", inputs, shape);
    conv.attributes.set("group", std::int64_t{depthwise ? channels : 1});
    conv.attributes.set("pads", std::vector<std::int64_t>(4, kernel / 2));
    if (pick(2) == 0) add_batch_norm(Value(values_.back()));
    if (pick(2) == 0) add_unary(Value(values_.back()));
  }

  void add_batch_norm(const Value& x) {
    const Shape channels{x.shape[1]};
    add("BatchNormalization",
        {x.name, weight(channels, 0.5, 1.5), weight(channels, -1, 1), weight(channels, -0.5, 0.5),
         weight(channels, 0.5, 2)},
        x.shape);
  }

  void add_pooling(const Value& x) {
    if (x.shape[2] < 2 || x.shape[3] < 2 || pick(4) == 0)
      return void(add("GlobalAveragePool", {x.name}, {x.shape[0], x.shape[1], 1, 1}));
    Layer& pool = add(pick(2) == 0 ? "MaxPool" : "AveragePool", {x.name},
                      {x.shape[0], x.shape[1], x.shape[2] - 1, x.shape[3] - 1});
    pool.attributes.set("kernel_shape", std::vector<std::int64_t>{2, 2});
  }

  void add_row_pattern(const Value& x) {
    if (pick(3) == 0) {
      Layer& softmax = add("Softmax", {x.name}, x.shape);
      softmax.attributes.set("axis", std::int64_t{-1});
      return;
    }
    const std::int64_t rank = static_cast<std::int64_t>(x.shape.size());
    const std::int64_t axis = pick(4) == 0 ? static_cast<std::int64_t>(pick(x.shape.size())) : rank - 1;
    Shape reduced = x.shape;
    reduced[axis] = 1;
    if (pick(2) == 0) {
      add("ReduceSum", {x.name, integers({axis})}, reduced);
      add("Mul", {values_.back().name, scalar(0.05f, 0.2f)}, reduced);
    } else {
      Layer& reduce = add(pick(2) == 0 ? "ReduceMean" : "ReduceMax", {x.name}, reduced);
      reduce.attributes.set("axes", std::vector<std::int64_t>{axis});
    }
    if (pick(4) != 0) add("Sub", {x.name, values_.back().name}, x.shape);
  }

  void add_normalization(const Value& x) {
    if (x.shape.size() == 4 && pick(2) == 0) return add_batch_norm(x);
    if (x.shape.size() == 4 && x.shape[2] * x.shape[3] > 1 && pick(2) == 0)
      return void(
          add("InstanceNormalization", {x.name, weight({x.shape[1]}, 0.5, 1.5), weight({x.shape[1]}, -1, 1)}, x.shape));
    if (x.shape.back() < 3) return add_unary(x);
    add("LayerNormalization", {x.name, weight({x.shape.back()}, 0.5, 1.5), weight({x.shape.back()}, -1, 1)}, x.shape);
  }

  void add_concat(const Value& x) {
    const std::size_t axis = pick(x.shape.size());
    Shape shape = x.shape;
    if (num_elements(shape) > 1000) return add_unary(x);
    std::string other = x.name;
    for (const Value& value : values_)
      if (value.shape == x.shape && pick(2) == 0) other = value.name;
    shape[axis] *= 2;
    Layer& concat = add("Concat", {x.name, other}, shape);
    concat.attributes.set("axis", static_cast<std::int64_t>(axis));
  }

  void add_movement(const Value& x) {
    if (x.shape.size() >= 2 && pick(2) == 0) {
      std::vector<std::int64_t> perm(x.shape.size());
      for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
      std::shuffle(perm.begin(), perm.end(), random_);
      Shape shape;
      for (std::int64_t d : perm) shape.push_back(x.shape[d]);
      Layer& transpose = add("Transpose", {x.name}, shape);
      transpose.attributes.set("perm", perm);
      return;
    }
    if (x.shape.size() == 3 && pick(3) == 0) {
      const Shape shape{x.shape[0], x.shape[1], x.shape[2], 1};
      return void(add("Unsqueeze", {x.name, integers({3})}, shape));
    }
    if (x.shape.size() < 3) return void(add("Identity", {x.name}, x.shape));
    // The first two dimensions become one.
    Shape shape{x.shape[0] * x.shape[1]};
    shape.insert(shape.end(), x.shape.begin() + 2, x.shape.end());
    add("Reshape", {x.name, integers({shape.begin(), shape.end()})}, shape);
  }

  /// softmax(x x^T / 2) x, for the last two dimensions.
  void add_attention(const Value& x) {
    if (x.shape.size() < 2) return add_unary(x);
    Shape turned = x.shape, scores = x.shape;
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    scores.back() = x.shape[x.shape.size() - 2];
    std::vector<std::int64_t> perm(x.shape.size());
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<std::int64_t>(i);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    add("Tanh", {x.name}, x.shape);
    const std::string bounded = values_.back().name;
    add("Transpose", {bounded}, turned).attributes.set("perm", perm);
    add("MatMul", {bounded, values_.back().name}, scores);
    add("Mul", {values_.back().name, scalar(0.3f, 0.6f)}, scores);
    add("Softmax", {values_.back().name}, scores).attributes.set("axis", std::int64_t{-1});
    add("MatMul", {values_.back().name, bounded}, x.shape);
  }

  std::mt19937 random_;
  NetworkBuilder builder_;
  std::vector<Value> values_;
  std::vector<Tensor> inputs_;
  int count_ = 0, weights_ = 0;
};

}  // namespace ulpscope::testing
