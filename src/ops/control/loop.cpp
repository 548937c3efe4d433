// Loop, ai.onnx 1, 11, 13, 16, 19, 21, 23, 24, 25: repeats a body while a condition holds, up to a trip count; either
// may be absent. Results are the last loop-carried values, then the stacked outputs of all iterations (tensors only).
#include <limits>

#include "ops/control/subgraphs.h"

namespace ulpscope::ops {
namespace {

/// How many values go from one iteration to the next. The body's inputs are the iteration number, the condition, these.
template <typename Context>
std::size_t carried_values(const Context& ctx, const Subgraph& body) {
  const std::size_t formals = formal_inputs(body);
  if (formals < 2 || body.network->outputs.size() + 1 < formals)
    ctx.fail(fmt::format("a body with {} inputs and {} outputs is not one of a loop", formals,
                         body.network->outputs.size()));
  const std::size_t carried = formals - 2;
  if (static_cast<std::size_t>(ctx.num_outputs()) > body.network->outputs.size() - 1)
    ctx.fail(fmt::format("the body has {} outputs, too few for the {} of the layer", body.network->outputs.size(),
                         ctx.num_outputs()));
  return carried;
}

void infer_loop(InferContext& ctx) {
  const Subgraph& body = ctx.attributes().required_graph("body");
  const std::size_t carried = carried_values(ctx, body);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    DataType type = subgraph_output_type(body, static_cast<std::size_t>(i) + 1);
    if (type == DataType::kUndefined && static_cast<std::size_t>(i) < carried && ctx.has_input(i + 2))
      type = ctx.type(i + 2);
    ctx.set_type(i, type);
  }
}

/// A scalar in the rank that the body declares for its input: some exporters write (1,) for ().
Tensor as_declared(Tensor scalar, const Subgraph& body, std::size_t input) {
  const auto& shape = body.network->tensor(body.network->inputs[input]).shape;
  return shape && shape->size() == 1 ? scalar.reshaped({1}) : scalar;
}

void run_loop(KernelContext& ctx) {
  const Subgraph& body = ctx.attributes().required_graph("body");
  const std::size_t carried = carried_values(ctx, body), outputs = body.network->outputs.size();
  const std::int64_t trips = ctx.has_input(0) ? single_integer(ctx, 0) : std::numeric_limits<std::int64_t>::max();
  bool condition = !ctx.has_input(1) || single_bool(ctx, ctx.input(1), "condition");
  std::vector<Tensor> state(carried);
  for (std::size_t i = 0; i < carried; ++i) {
    if (!ctx.has_input(static_cast<int>(i) + 2)) ctx.fail(fmt::format("loop-carried value {} has no initial value", i));
    state[i] = ctx.input(static_cast<int>(i) + 2);
  }
  std::vector<Stack> stacks(outputs - 1 - carried);
  for (std::int64_t trip = 0; trip < trips && condition; ++trip) {
    std::vector<Tensor> inputs{as_declared(Tensor::scalar(trip), body, 0), as_declared(Tensor::scalar(true), body, 1)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    std::vector<Tensor> results = run_subgraph(ctx, "body", inputs, outputs);
    condition = single_bool(ctx, results[0], "condition of the body");
    for (std::size_t i = 0; i < carried; ++i) state[i] = std::move(results[i + 1]);
    for (std::size_t i = 0; i < stacks.size(); ++i) stacks[i].push(ctx, std::move(results[1 + carried + i]));
  }
  const auto shape_of_nothing = [&](std::size_t output) {
    std::vector<Shape> shapes{as_declared(Tensor::scalar(trips), body, 0).shape(),
                              as_declared(Tensor::scalar(true), body, 1).shape()};
    for (const Tensor& each : state) shapes.push_back(each.shape());
    return shape_without_run(ctx, body, std::move(shapes), output);
  };
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (!ctx.has_output(i)) continue;
    const std::size_t index = static_cast<std::size_t>(i);
    if (index < carried) {
      ctx.set_output(i, state[index].clone());
      continue;
    }
    const Stack& stack = stacks[index - carried];
    Shape nothing = stack.empty() ? shape_of_nothing(index + 1) : Shape{};
    ctx.set_output(i, stack.join(ctx, 0, false, std::move(nothing), ctx.output_type(i)));
  }
}

/// The iteration number, the condition, and what goes from one iteration to the next.
BodyInput body_input_of_loop(const Layer&, int formal) {
  if (formal >= 2) return {.input = formal};
  return {.type = formal == 0 ? DataType::kInt64 : DataType::kBool};
}

}  // namespace

OpDef loop() {
  return {.name = "Loop",
          .inputs = {2, kAnyNumber},
          .outputs = {1, kAnyNumber},
          .types = {kIndices, kBooleans, kEverything},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kControl,
          .infer = infer_loop,
          .run = run_loop,
          .body_input = body_input_of_loop};
}

}  // namespace ulpscope::ops
