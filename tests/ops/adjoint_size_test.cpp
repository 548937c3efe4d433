// No adjoint grows faster than its operator: where the operator moves or sums a few elements, so does the adjoint.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "graph/adjoint.h"
#include "graph/network.h"
#include "ops/adjoint_rows.h"
#include "ops/op_rows.h"
#include "ops/registry.h"

namespace ulpscope::test {
namespace {

using Ints = std::vector<std::int64_t>;

AdjointInput floats(std::vector<float> values) {
  return constant(Tensor::of<float>({static_cast<std::int64_t>(values.size())}, std::span<const float>(values)));
}

/// 0, 1, ..., count - 1 in another order.
AdjointInput places(const Shape& shape, std::int64_t below) {
  Tensor result(DataType::kInt64, shape);
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<std::int64_t>()[i] = i * 7 % below;
  return given(std::move(result));
}

/// Layers whose cost is linear in n, as functions of it.
std::vector<std::function<AdjointRow(std::int64_t)>> forms() {
  std::vector<std::function<AdjointRow(std::int64_t)>> result;
  const auto add = [&](auto form) { result.emplace_back(form); };
  for (const std::string mode : {"constant", "reflect", "edge", "wrap"}) {
    add([=](std::int64_t n) {
      return AdjointRow{"Pad", mode, {vary({1, n}), constant(Ints{0, 128, 0, 128})}, {{"mode", mode}}};
    });
    add([=](std::int64_t n) {
      return AdjointRow{"Pad", mode + " many times", {vary({1, 3}), constant(Ints{0, n, 0, 2 * n})}, {{"mode", mode}}};
    });
    add([=](std::int64_t n) {
      return AdjointRow{"Pad", mode + " by its size", {vary({n, 2}), constant(Ints{n - 1, 0, n, 0})}, {{"mode", mode}}};
    });
  }
  for (const std::string coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                                        "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"})
    for (const std::string mode : {"nearest", "linear", "cubic"})
      for (const float scale : {0.3f, 2.0f, 2.7f})
        for (const std::int64_t antialias : {0, 1})
          add([=](std::int64_t n) {
            // A narrow region: many sums of few elements.
            const AdjointInput region = coordinates == "tf_crop_and_resize" ? floats({0, 0.5f, 1, 0.501f}) : absent();
            return AdjointRow{
                "Resize",
                mode + " " + coordinates + " " + std::to_string(scale),
                {vary({2, n}), region, floats({1, scale})},
                {{"mode", mode}, {"antialias", antialias}, {"coordinate_transformation_mode", coordinates}},
                19};
          });
  add([](std::int64_t n) {
    return AdjointRow{"Resize",
                      "by n",
                      {vary({1, 8}), absent(), absent(), constant(Ints{1, n})},
                      {{"mode", std::string("linear")}},
                      19};
  });
  add([](std::int64_t n) { return AdjointRow{"Upsample", "", {vary({1, n}), floats({1, 3})}, {}, 9}; });
  add([](std::int64_t n) {
    return AdjointRow{
        "Slice", "", {vary({n}), constant(Ints{1}), constant(Ints{n}), constant(Ints{0}), constant(Ints{3})}};
  });
  add([](std::int64_t n) { return AdjointRow{"CenterCropPad", "", {vary({n}), constant(Ints{n + 100})}}; });
  add([](std::int64_t n) { return AdjointRow{"Gather", "", {vary({n, 2}), places({n}, n)}}; });
  add([](std::int64_t n) { return AdjointRow{"Gather", "one", {vary({n, 2}), constant(Ints{7})}}; });
  add([](std::int64_t n) { return AdjointRow{"GatherElements", "", {vary({n}), places({n}, n)}}; });
  add([](std::int64_t n) { return AdjointRow{"GatherND", "", {vary({n, 2}), places({n, 1}, n)}}; });
  add([](std::int64_t n) { return AdjointRow{"ScatterElements", "", {vary({n}), places({n}, n), vary({n})}}; });
  add([](std::int64_t n) { return AdjointRow{"ScatterND", "", {vary({n, 2}), places({n, 1}, n), vary({n, 2})}}; });
  add([](std::int64_t n) { return AdjointRow{"Tile", "", {vary({3}), constant(Ints{n})}}; });
  add([](std::int64_t n) { return AdjointRow{"Expand", "", {vary({3, 1}), constant(Ints{3, n})}}; });
  add([](std::int64_t n) { return AdjointRow{"Concat", "", {vary({n}), vary({n})}, {{"axis", std::int64_t{0}}}}; });
  add([](std::int64_t n) { return AdjointRow{"Split", "", {vary({2 * n})}, {}, 13, 2}; });
  add([](std::int64_t n) { return AdjointRow{"Transpose", "", {vary({n, 2})}}; });
  add([](std::int64_t n) {
    return AdjointRow{"DepthToSpace", "", {vary({1, 4, n, 2})}, {{"blocksize", std::int64_t{2}}}};
  });
  add([](std::int64_t n) {
    return AdjointRow{"SpaceToDepth", "", {vary({1, 1, 2 * n, 2})}, {{"blocksize", std::int64_t{2}}}};
  });
  add([](std::int64_t n) { return AdjointRow{"ReverseSequence", "", {vary({n, 1}), given(i64({1}, {n}))}}; });
  add([](std::int64_t n) { return AdjointRow{"Trilu", "", {vary({n, 4})}}; });
  add([](std::int64_t n) { return AdjointRow{"Where", "", {given(b8({1}, {true})), vary({n}), vary({1})}}; });
  add([](std::int64_t n) { return AdjointRow{"CumSum", "", {vary({n}), constant(Tensor::scalar<std::int64_t>(0))}}; });
  add([](std::int64_t n) { return AdjointRow{"TopK", "", {vary({n}), constant(Ints{n / 2})}, {}, 21, 2}; });
  for (const std::string op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSumExp"})
    add([=](std::int64_t n) { return AdjointRow{op, "", {vary({2, n}), constant(Ints{1})}}; });
  for (const std::string op : {"Softmax", "LogSoftmax", "Relu", "LpNormalization"})
    add([=](std::int64_t n) { return AdjointRow{op, "", {vary({2, n})}}; });
  for (const std::string op : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"})
    add([=](std::int64_t n) { return AdjointRow{op, "", {vary({1, 2, n})}}; });
  for (const std::string op : {"AveragePool", "MaxPool", "LpPool"}) {
    add([=](std::int64_t n) { return AdjointRow{op, "", {vary({1, 2, n})}, {{"kernel_shape", Ints{5}}}}; });
    add([=](std::int64_t n) { return AdjointRow{op, "of all", {vary({1, 2, n})}, {{"kernel_shape", Ints{n}}}}; });
  }
  add([](std::int64_t n) { return AdjointRow{"LRN", "", {vary({1, n, 2})}, {{"size", std::int64_t{5}}}}; });
  for (const std::string op : {"Conv", "ConvTranspose"}) {
    add([=](std::int64_t n) {
      return AdjointRow{op, "", {vary({1, 2, n}), vary({2, 2, 9})}, {{"strides", Ints{4}}, {"pads", Ints{4, 4}}}};
    });
    add([=](std::int64_t n) {
      return AdjointRow{op, "depthwise", {vary({1, n, 5}), vary({n, 1, 3})}, {{"group", n}}};
    });
  }
  add([](std::int64_t n) { return AdjointRow{"LayerNormalization", "", {vary({2, n}), vary({n}), vary({n})}}; });
  add([](std::int64_t n) { return AdjointRow{"InstanceNormalization", "", {vary({1, 2, n}), vary({2}), vary({2})}}; });
  add([](std::int64_t n) {
    return AdjointRow{"Einsum", "", {vary({n, 3}), vary({n, 3})}, {{"equation", std::string("ij,ij->i")}}};
  });
  add([](std::int64_t n) { return AdjointRow{"MatMul", "", {vary({n, 3}), vary({3, 2})}}; });
  return result;
}

/// Elements of all tensors of the layer's adjoint network, constants and what it computes.
std::int64_t adjoint_elements(const AdjointRow& row) {
  const RowNetwork made = network_of(row, DataType::kFloat32);
  const Network& network = made.network;
  std::vector<Shape> shapes;
  for (const TensorId id : network.inputs) shapes.push_back(*network.tensor(id).shape);
  const AdjointNetwork adjoint =
      make_adjoint(network, infer(network, shapes), op_registry(), made.varied, network.outputs);
  std::int64_t elements = 0;
  for (const auto& [id, info] : adjoint.network.tensors.items()) elements += num_elements(*info.shape);
  for (const TensorId gradient : adjoint.gradients) EXPECT_NE(gradient, kNone);
  return elements;
}

TEST(AdjointSize, GrowsAsItsOperatorDoes) {
  for (const auto& form : forms()) {
    const AdjointRow row = form(1 << 10);
    SCOPED_TRACE(row.op + " " + row.label);
    try {
      const std::int64_t small = adjoint_elements(row), large = adjoint_elements(form(1 << 12));
      // Four times as much, or a little more where a narrow region comes to have other neighbors. A dense matrix
      // has sixteen times.
      EXPECT_LE(large, 6 * small);
      // Of what goes in and out, at most so many times.
      EXPECT_LE(large, (std::int64_t{1} << 12) * 400);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

/// An unrolled loop reads its input step by step; the gradients of all steps are never there at once.
TEST(AdjointSize, PartsOfOneTensorAreAddedAsTheyArrive) {
  Network network;
  const auto tensor = [&](const std::string& name, const Shape& shape) {
    TensorInfo info;
    info.name = name;
    info.type = DataType::kFloat32;
    info.shape = shape;
    return network.add_tensor(std::move(info));
  };
  const auto layer = [&](const char* op, std::vector<TensorId> inputs, const std::string& output) {
    Layer made;
    made.name = output;
    made.op = op_registry().find("", op);
    made.opset = 13;
    made.inputs = std::move(inputs);
    TensorInfo info;
    info.name = output;
    made.outputs = {network.add_tensor(std::move(info))};
    network.add_layer(std::move(made));
    return network.layers.back().outputs[0];
  };
  const TensorId x = tensor("x", {16, 4});
  network.inputs = {x};
  TensorId state = kNone;
  for (std::int64_t t = 0; t < 16; ++t) {
    TensorInfo info;
    info.name = "t" + std::to_string(t);
    info.type = DataType::kInt64;
    info.value = Tensor::scalar<std::int64_t>(t);
    info.shape = Shape{};
    const TensorId step = layer("Gather", {x, network.add_tensor(std::move(info))}, "x" + std::to_string(t));
    state = state == kNone ? step : layer("Mul", {state, step}, "s" + std::to_string(t));
  }
  network.outputs = {state};
  infer_types(network);
  const AdjointNetwork adjoint =
      make_adjoint(network, infer(network, {{16, 4}}), op_registry(), network.inputs, network.outputs);
  // How many tensors of the input's size are alive at a time.
  const Network& made = adjoint.network;
  std::map<TensorId, std::size_t> last;
  std::size_t step = 0;
  for (const Layer& each : made.layers) {
    for (const TensorId id : each.inputs) last[id] = step;
    ++step;
  }
  std::set<TensorId> alive;
  std::size_t most = 0;
  step = 0;
  for (const Layer& each : made.layers) {
    for (const TensorId id : each.outputs)
      if (*made.tensor(id).shape == Shape{16, 4}) alive.insert(id);
    most = std::max(most, alive.size());
    std::erase_if(alive, [&](TensorId id) { return last[id] <= step && id != adjoint.gradients[0]; });
    ++step;
  }
  EXPECT_LE(most, 3u);
}

}  // namespace
}  // namespace ulpscope::test
