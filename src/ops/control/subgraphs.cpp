#include "ops/control/subgraphs.h"

#include <algorithm>

#include "graph/inference.h"
#include "ulpscope/error.h"

namespace ulpscope::ops {

DataType subgraph_output_type(const Subgraph& graph, std::size_t i) {
  const Network& network = *graph.network;
  return i < network.outputs.size() ? network.tensor(network.outputs[i]).type : DataType::kUndefined;
}

std::size_t formal_inputs(const Subgraph& graph) { return graph.network->inputs.size() - graph.captures.size(); }

bool single_bool(const KernelContext& ctx, const Tensor& tensor, std::string_view what) {
  if (tensor.type() != DataType::kBool || tensor.size() != 1)
    ctx.fail(fmt::format("expected one bool as {}, got {} elements of type {}", what, tensor.size(),
                         name_of(tensor.type())));
  return tensor.data<bool>()[0];
}

std::vector<Tensor> run_subgraph(const KernelContext& ctx, std::string_view attribute, std::span<const Tensor> inputs,
                                 std::size_t outputs) {
  std::vector<Tensor> results = ctx.runner().run(attribute, inputs);
  if (results.size() != outputs)
    ctx.fail(fmt::format("'{}' has {} outputs, expected {}", attribute, results.size(), outputs));
  return results;
}

Shape shape_without_run(const KernelContext& ctx, const Subgraph& graph, std::vector<Shape> inputs, std::size_t i) {
  const TensorId output = graph.network->outputs[i];
  for (int capture : graph.captures) inputs.push_back(ctx.input(capture).shape());
  try {
    if (const auto inferred = infer(*graph.network, inputs).shapes[output]) return *inferred;
  } catch (const Error&) {  // It would not have run.
  }
  Shape shape = graph.network->tensor(output).shape.value_or(Shape{});
  for (std::int64_t& dim : shape) dim = std::max<std::int64_t>(dim, 0);
  return shape;
}

void Stack::push(const KernelContext& ctx, Tensor tensor) {
  if (!parts_.empty() && (tensor.shape() != parts_[0].shape() || tensor.type() != parts_[0].type()))
    ctx.fail(fmt::format("an iteration yields the shape {}, the first one {}", to_string(tensor.shape()),
                         to_string(parts_[0].shape())));
  parts_.push_back(std::move(tensor));
}

Tensor Stack::join(const KernelContext& ctx, std::int64_t axis, bool reversed, Shape shape, DataType type) const {
  if (!parts_.empty()) {
    shape = parts_[0].shape();
    type = parts_[0].type();
  }
  axis = normalize_axis(ctx, axis, static_cast<std::int64_t>(shape.size()) + 1);
  const std::size_t a = static_cast<std::size_t>(axis);
  const std::int64_t outer = product(shape, 0, a), inner = product(shape, a, shape.size()),
                     count = static_cast<std::int64_t>(parts_.size());
  shape.insert(shape.begin() + axis, count);
  Tensor result(physical_type(type), std::move(shape));
  const std::vector<std::int64_t> from{inner, 1}, to{inner * count, 1};
  for (std::int64_t k = 0; k < count; ++k) {
    const Tensor& part = parts_[static_cast<std::size_t>(reversed ? count - 1 - k : k)];
    copy_strided(part.type(), part.raw(), from, element(result, k * inner), to, {outer, inner});
  }
  return result;
}

Tensor slice_at(const Tensor& tensor, std::size_t axis, std::int64_t index) {
  const Shape& shape = tensor.shape();
  const std::int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
  Shape rest = shape;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(axis));
  Tensor result(tensor.type(), std::move(rest));
  const std::vector<std::int64_t> from{inner * shape[axis], 1};
  copy_strided(tensor.type(), element(tensor, index * inner), from, result.raw(), {outer, inner});
  return result;
}

}  // namespace ulpscope::ops
