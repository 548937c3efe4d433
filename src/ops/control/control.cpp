// If, Loop and Scan: operators that run sub-graphs.
#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/folding.h"
#include "graph/inference.h"
#include "ops/movement.h"
#include "ulpscope/error.h"

namespace ulpscope::ops {
namespace {

/// Collects one output of each iteration and joins them along a new axis.
class Stack {
 public:
  /// Fails when the shapes differ from iteration to iteration.
  void push(const KernelContext& ctx, Tensor tensor);
  bool empty() const noexcept { return parts_.empty(); }
  /// The parts in order (or in reverse) along `axis` (negative: from the end of the result). Without parts, none of
  /// this shape and type.
  Tensor join(const KernelContext& ctx, std::int64_t axis, bool reversed, Shape shape, DataType type) const;

 private:
  std::vector<Tensor> parts_;
};

/// The declared type of output `i` of a sub-graph; kUndefined when it is not known or there is no such output.
DataType subgraph_output_type(const Subgraph& graph, std::size_t i) {
  const Network& network = *graph.network;
  return i < network.outputs.size() ? network.tensor(network.outputs[i]).type : DataType::kUndefined;
}

/// The formal inputs of a sub-graph: those of the ONNX graph, without captured values.
std::size_t formal_inputs(const Subgraph& graph) { return graph.network->inputs.size() - graph.captures.size(); }

/// The one element of a bool tensor.
bool single_bool(const KernelContext& ctx, const Tensor& tensor, std::string_view what) {
  if (tensor.type() != DataType::kBool || tensor.size() != 1)
    ctx.fail("expected one bool as {}, got {} elements of type {}", what, tensor.size(), name_of(tensor.type()));
  return tensor.data<bool>()[0];
}

/// Runs the sub-graph and checks how many outputs it has.
std::vector<Tensor> run_subgraph(const KernelContext& ctx, std::string_view attribute, std::span<const Tensor> inputs,
                                 std::size_t outputs) {
  std::vector<Tensor> results = ctx.runner().run(attribute, inputs);
  if (results.size() != outputs) ctx.fail("'{}' has {} outputs, expected {}", attribute, results.size(), outputs);
  return results;
}

/// The shape of output `i` of a sub-graph, for inputs of these shapes (nothing: not known), captured values after them
/// or, if these are left out, as they are; nothing where it does not follow, or the sub-graph does not fit them.
std::optional<Shape> inferred_shape(const KernelContext& ctx, const Subgraph& graph,
                                    std::vector<std::optional<Shape>> inputs, std::size_t i) {
  if (inputs.size() < graph.network->inputs.size())
    for (int capture : graph.captures) inputs.emplace_back(ctx.input(capture).shape());
  try {
    return infer(*graph.network, inputs, FoldingLimits{}, IdMap<TensorId, Tensor>()).shapes[graph.network->outputs[i]];
  } catch (const Error&) {  // It would not have run.
    return std::nullopt;
  }
}

/// 0 for dimensions that are not known.
Shape closed(Shape shape) {
  for (std::int64_t& dim : shape) dim = std::max<std::int64_t>(dim, 0);
  return shape;
}

/// What a body declares; nothing where it declares no shape.
std::optional<Shape> declared_shape(const Network& network, TensorId id) {
  const auto& shape = network.tensor(id).shape;
  return shape ? std::optional(closed(*shape)) : std::nullopt;
}

Shape declared_output(const Subgraph& graph, std::size_t i) {
  return declared_shape(*graph.network, graph.network->outputs[i]).value_or(Shape{});
}

/// The shape of output `i` of a sub-graph that never ran, for inputs of these shapes: as inferred, else as declared.
Shape shape_without_run(const KernelContext& ctx, const Subgraph& graph, const std::vector<Shape>& inputs,
                        std::size_t i) {
  const auto inferred = inferred_shape(ctx, graph, {inputs.begin(), inputs.end()}, i);
  return inferred ? *inferred : declared_output(graph, i);
}

void Stack::push(const KernelContext& ctx, Tensor tensor) {
  if (!parts_.empty() && (tensor.shape() != parts_[0].shape() || tensor.type() != parts_[0].type()))
    ctx.fail("an iteration yields the shape {}, the first one {}", to_string(tensor.shape()),
             to_string(parts_[0].shape()));
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

/// Entry `index` of `axis`, without that axis.
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

void infer_if(InferContext& ctx) {
  const Subgraph &then_branch = ctx.attributes().required_graph("then_branch"),
                 &else_branch = ctx.attributes().required_graph("else_branch");
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const DataType type = subgraph_output_type(then_branch, static_cast<std::size_t>(i)),
                   other = subgraph_output_type(else_branch, static_cast<std::size_t>(i));
    if (type != DataType::kUndefined && other != DataType::kUndefined && physical_type(type) != physical_type(other))
      ctx.fail("expected branches of one type, output {} is {} in the one and {} in the other", i, name_of(type),
               name_of(other));
    ctx.set_type(i, type != DataType::kUndefined ? type : other);
  }
}

void run_if(KernelContext& ctx) {
  const bool condition = single_bool(ctx, ctx.input(0), "condition");
  std::vector<Tensor> results =
      run_subgraph(ctx, condition ? "then_branch" : "else_branch", {}, static_cast<std::size_t>(ctx.num_outputs()));
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_output(i, std::move(results[static_cast<std::size_t>(i)]));
}

/// How many values go from one iteration to the next. The body's inputs are the iteration number, the condition, these.
template <typename Context>
std::size_t carried_values(const Context& ctx, const Subgraph& body) {
  const std::size_t formals = formal_inputs(body);
  if (formals < 2 || body.network->outputs.size() + 1 < formals)
    ctx.fail("a body with {} inputs and {} outputs is not one of a loop", formals, body.network->outputs.size());
  const std::size_t carried = formals - 2;
  if (static_cast<std::size_t>(ctx.num_outputs()) > body.network->outputs.size() - 1)
    ctx.fail("the body has {} outputs, too few for the {} of the layer", body.network->outputs.size(),
             ctx.num_outputs());
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

/// The shape of the elements of a scan output that no iteration made, where all inputs of the body are known: `shapes`.
/// What is carried may change its shape from one iteration to the next, so what counts is what follows from the
/// declared dimensions, as in ONNX Runtime: those that change with dimensions that the body leaves open are 0. Such
/// dimensions have to change together where others of their size are to fit them. Nothing where `shapes` do not fit.
std::optional<Shape> shape_of_declared(const KernelContext& ctx, const Subgraph& body, std::vector<Shape> shapes,
                                       std::size_t output) {
  const Network& network = *body.network;
  const auto infer_with = [&](const std::vector<Shape>& all) {
    return inferred_shape(ctx, body, {all.begin(), all.end()}, output);
  };
  const auto incoming = infer_with(shapes);
  if (!incoming) return std::nullopt;
  std::vector<std::int64_t*> open;
  for (std::size_t k = 2; k < shapes.size(); ++k) {
    const auto& declared = network.tensor(network.inputs[k]).shape;
    if (!declared || declared->size() != shapes[k].size()) continue;
    for (std::size_t d = 0; d < declared->size(); ++d)
      if ((*declared)[d] < 0) open.push_back(&shapes[k][d]);
  }
  Shape settled = *incoming;
  const auto change = [&](std::vector<std::int64_t*> dims) {
    const std::int64_t size = *dims[0], more = std::max<std::int64_t>(size, 1) * 12;  // A Reshape has to divide it.
    for (const std::int64_t other : {std::int64_t{0}, more}) {
      for (std::int64_t* dim : dims) *dim = other;
      const auto changed = infer_with(shapes);
      for (std::size_t d = 0; changed && changed->size() == settled.size() && d < settled.size(); ++d)
        if ((*changed)[d] != (*incoming)[d]) settled[d] = 0;
    }
    for (std::int64_t* dim : dims) *dim = size;
  };
  for (std::size_t i = 0; i < open.size(); ++i) {
    std::vector<std::int64_t*> alike{open[i]};
    change(alike);
    for (std::size_t j = i + 1; j < open.size(); ++j) {
      if (*open[j] != *open[i]) continue;
      change({open[i], open[j]});
      alike.push_back(open[j]);
    }
    if (alike.size() > 2) change(std::move(alike));
  }
  const auto& declared = network.tensor(network.outputs[output]).shape;
  for (std::size_t d = 0; declared && declared->size() == settled.size() && d < settled.size(); ++d)
    if (settled[d] == 0) settled[d] = std::max<std::int64_t>((*declared)[d], 0);
  return settled;
}

/// The same where some inputs may have no declared shape, or do not fit each other as they come in.
Shape shape_of_nothing(const KernelContext& ctx, const Subgraph& body, const std::vector<Tensor>& state,
                       std::size_t output) {
  const Network& network = *body.network;
  std::vector<std::optional<Shape>> declared{Shape{}, Shape{}};
  std::vector<Shape> incoming{Shape{}, Shape{}};
  bool all = true;
  for (std::size_t k = 0; k < state.size(); ++k) {
    const auto& own = declared.emplace_back(declared_shape(network, network.inputs[k + 2]));
    incoming.push_back(own && std::ssize(*own) != state[k].rank() ? *own : state[k].shape());
    all &= own.has_value();
  }
  for (int capture : body.captures) incoming.push_back(ctx.input(capture).shape());
  if (auto shape = declared_shape(network, network.outputs[output]); shape && !all) return *std::move(shape);
  if (const auto settled = shape_of_declared(ctx, body, std::move(incoming), output)) return *settled;
  if (const auto inferred = inferred_shape(ctx, body, std::move(declared), output)) return *inferred;
  return declared_output(body, output);
}

void run_loop(KernelContext& ctx) {
  const Subgraph& body = ctx.attributes().required_graph("body");
  const std::size_t carried = carried_values(ctx, body), outputs = body.network->outputs.size();
  const std::int64_t trips = ctx.has_input(0) ? single_integer(ctx, 0) : std::numeric_limits<std::int64_t>::max();
  bool condition = !ctx.has_input(1) || single_bool(ctx, ctx.input(1), "condition");
  std::vector<Tensor> state(carried);
  for (std::size_t i = 0; i < carried; ++i) {
    if (!ctx.has_input(static_cast<int>(i) + 2)) ctx.fail("loop-carried value {} has no initial value", i);
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
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (!ctx.has_output(i)) continue;
    const std::size_t index = static_cast<std::size_t>(i);
    if (index < carried) {
      ctx.set_output(i, state[index].clone());
      continue;
    }
    const Stack& stack = stacks[index - carried];
    Shape nothing = stack.empty() ? shape_of_nothing(ctx, body, state, index + 1) : Shape{};
    ctx.set_output(i, stack.join(ctx, 0, false, std::move(nothing), ctx.output_type(i)));
  }
}

/// The iteration number, the condition, and what goes from one iteration to the next.
BodyInput body_input_of_loop(const Layer&, int formal) {
  if (formal >= 2) return {.input = formal};
  return {.type = formal == 0 ? DataType::kInt64 : DataType::kBool};
}

struct ScanPlan {
  std::size_t scans, states, outputs;  ///< Scanned inputs; state variables; outputs per iteration that are stacked.
  int first;                           ///< The layer's input that is the first state.
  std::vector<std::int64_t> input_axes, output_axes;
  std::vector<bool> input_reversed, output_reversed;
};

template <typename Context>
ScanPlan scan_plan(const Context& ctx, const Subgraph& body) {
  const std::size_t formals = formal_inputs(body), results = body.network->outputs.size();
  const std::int64_t scans = ctx.attributes().required_integer("num_scan_inputs");
  if (scans < 1 || scans > static_cast<std::int64_t>(formals) || results + static_cast<std::size_t>(scans) < formals)
    ctx.fail("num_scan_inputs {} does not fit a body with {} inputs and {} outputs", scans, formals, results);
  ScanPlan plan;
  plan.scans = static_cast<std::size_t>(scans);
  plan.states = formals - plan.scans;
  plan.outputs = results - plan.states;
  const bool batched = ctx.opset() < 9;
  plan.first = batched ? 1 : 0;
  const auto list = [&](std::string_view name, std::size_t size) {
    std::vector<std::int64_t> values = ctx.attributes().ints(name);
    if (values.empty()) values.assign(size, 0);
    if (values.size() != size) ctx.fail("{} has {} entries, expected {}", name, values.size(), size);
    return values;
  };
  plan.input_axes = list(batched ? "" : "scan_input_axes", plan.scans);
  plan.output_axes = list(batched ? "" : "scan_output_axes", plan.outputs);
  for (std::int64_t d : list(batched ? "directions" : "scan_input_directions", plan.scans))
    plan.input_reversed.push_back(d != 0);
  for (std::int64_t d : list(batched ? "" : "scan_output_directions", plan.outputs))
    plan.output_reversed.push_back(d != 0);
  return plan;
}

void infer_scan(InferContext& ctx) {
  const Subgraph& body = ctx.attributes().required_graph("body");
  const ScanPlan plan = scan_plan(ctx, body);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    DataType type = subgraph_output_type(body, static_cast<std::size_t>(i));
    const int state = plan.first + i;
    if (type == DataType::kUndefined && static_cast<std::size_t>(i) < plan.states && ctx.has_input(state))
      type = ctx.type(state);
    ctx.set_type(i, type);
  }
}

/// One sequence: states and sequences in, states and stacked outputs out. `length` entries are scanned, or all when -1.
std::vector<Tensor> scan_one(const KernelContext& ctx, const Subgraph& body, const ScanPlan& plan,
                             std::vector<Tensor> state, const std::vector<Tensor>& sequences, std::int64_t length) {
  std::vector<std::size_t> axes;
  for (std::size_t k = 0; k < plan.scans; ++k) {
    axes.push_back(static_cast<std::size_t>(normalize_axis(ctx, plan.input_axes[k], sequences[k].rank())));
    const std::int64_t size = sequences[k].shape()[axes[k]];
    if (k == 0 && length < 0) length = size;
    if (plan.first == 0 ? size != length : size < length)
      ctx.fail("scanned input {} has {} entries, expected {}", k, size, length);
  }
  std::vector<Shape> shapes;
  for (const Tensor& each : state) shapes.push_back(each.shape());
  for (std::size_t k = 0; k < plan.scans; ++k) {
    shapes.push_back(sequences[k].shape());
    shapes.back().erase(shapes.back().begin() + static_cast<std::ptrdiff_t>(axes[k]));
  }
  std::vector<Stack> stacks(plan.outputs);
  for (std::int64_t t = 0; t < length; ++t) {
    std::vector<Tensor> inputs = std::move(state);
    for (std::size_t k = 0; k < plan.scans; ++k)
      inputs.push_back(slice_at(sequences[k], axes[k], plan.input_reversed[k] ? length - 1 - t : t));
    std::vector<Tensor> results = run_subgraph(ctx, "body", inputs, plan.states + plan.outputs);
    for (std::size_t i = 0; i < plan.outputs; ++i) stacks[i].push(ctx, std::move(results[plan.states + i]));
    results.resize(plan.states);
    state = std::move(results);
  }
  for (std::size_t i = 0; i < plan.outputs; ++i) {
    const std::size_t index = plan.states + i;
    const DataType type = subgraph_output_type(body, index);
    state.push_back(stacks[i].join(ctx, plan.output_axes[i], plan.output_reversed[i],
                                   stacks[i].empty() ? shape_without_run(ctx, body, shapes, index) : Shape{},
                                   type == DataType::kUndefined ? DataType::kFloat32 : type));
  }
  return state;
}

/// Opset 8: each sample of the batch by itself; outputs of shorter sequences end in zeros.
std::vector<Tensor> scan_batch(const KernelContext& ctx, const Subgraph& body, const ScanPlan& plan,
                               const std::vector<Tensor>& state, const std::vector<Tensor>& sequences) {
  const Shape& shape = sequences[0].shape();
  if (shape.size() < 2) ctx.fail("expected sequences of shape (batch, length, ...), got {}", to_string(shape));
  const std::int64_t batches = shape[0], longest = shape[1];
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batches), longest);
  if (ctx.has_input(0)) lengths = ctx.input_ints(0);
  if (static_cast<std::int64_t>(lengths.size()) != batches)
    ctx.fail("{} sequence_lens for a batch of {}", lengths.size(), batches);
  std::vector<Stack> stacks(plan.states + plan.outputs);
  const auto sample = [&](const Tensor& tensor, std::int64_t b) {
    if (tensor.rank() == 0 || tensor.shape()[0] != batches)
      ctx.fail("expected a batch of {}, got the shape {}", batches, to_string(tensor.shape()));
    return slice_at(tensor, 0, b);
  };
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > longest)
      ctx.fail("sequence {} has length {}, which is outside of [0, {}]", b, length, longest);
    std::vector<Tensor> own_state, own_sequences;
    for (const Tensor& tensor : state) own_state.push_back(sample(tensor, b));
    for (const Tensor& tensor : sequences) own_sequences.push_back(sample(tensor, b));
    std::vector<Tensor> results = scan_one(ctx, body, plan, std::move(own_state), own_sequences, length);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (i >= plan.states && length < longest) {
        Shape padded_shape = results[i].shape();
        padded_shape[0] = longest;
        Tensor padded(results[i].type(), padded_shape);
        std::memset(padded.raw(), 0, padded.bytes());
        if (results[i].bytes() != 0) std::memcpy(padded.raw(), results[i].raw(), results[i].bytes());
        results[i] = std::move(padded);
      }
      stacks[i].push(ctx, std::move(results[i]));
    }
  }
  std::vector<Tensor> joined;
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    const DataType type = subgraph_output_type(body, i);
    // Without samples, as one that is scanned for no entries.
    std::vector<Shape> shapes;
    if (stacks[i].empty())
      for (const auto* tensors : {&state, &sequences})
        for (const Tensor& each : *tensors) {
          const std::ptrdiff_t dropped = tensors == &state ? 1 : 2;  // The batch, and the length of sequences.
          shapes.emplace_back(each.shape().begin() + std::min<std::ptrdiff_t>(dropped, each.rank()),
                              each.shape().end());
        }
    Shape element = stacks[i].empty() ? shape_without_run(ctx, body, std::move(shapes), i) : Shape{};
    if (stacks[i].empty() && i >= plan.states) element.insert(element.begin(), longest);
    joined.push_back(
        stacks[i].join(ctx, 0, false, std::move(element), type == DataType::kUndefined ? DataType::kFloat32 : type));
  }
  return joined;
}

void run_scan(KernelContext& ctx) {
  const Subgraph& body = ctx.attributes().required_graph("body");
  const ScanPlan plan = scan_plan(ctx, body);
  std::vector<Tensor> state, sequences;
  for (std::size_t i = 0; i < plan.states + plan.scans; ++i) {
    const int input = plan.first + static_cast<int>(i);
    if (!ctx.has_input(input)) ctx.fail("input {} is missing", input);
    (i < plan.states ? state : sequences).push_back(ctx.input(input));
  }
  std::vector<Tensor> results = plan.first == 0 ? scan_one(ctx, body, plan, std::move(state), sequences, -1)
                                                : scan_batch(ctx, body, plan, state, sequences);
  if (static_cast<std::size_t>(ctx.num_outputs()) > results.size())
    ctx.fail("the body yields {} outputs, the layer has {}", results.size(), ctx.num_outputs());
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_output(i, results[static_cast<std::size_t>(i)].clone());
}

/// States, then entries of sequences. Opset 8 has sequence_lens in front, and batches.
BodyInput body_input_of_scan(const Layer& layer, int formal) {
  const bool batched = layer.opset < 9;
  BodyInput result{.input = formal + (batched ? 1 : 0)};
  const auto scans = static_cast<int>(layer.attributes.integer("num_scan_inputs", 0));
  const int scanned = formal - (static_cast<int>(formal_inputs(layer.attributes.required_graph("body"))) - scans);
  if (batched) {
    result.without = {0};
    if (scanned >= 0) result.without.push_back(1);
  } else if (scanned >= 0) {
    const std::vector<std::int64_t> axes = layer.attributes.ints("scan_input_axes");
    result.without = {scanned < std::ssize(axes) ? axes[static_cast<std::size_t>(scanned)] : 0};
  }
  return result;
}

}  // namespace

OpTable control() {
  return {
      // If, ai.onnx 1, 11, 13, 16, 19, 21, 23, 24, 25: the outputs of one of two sub-graphs (tensors only).
      fixed_op({.name = "If",
                .inputs = {1, kAnyNumber},
                .outputs = {1, kAnyNumber},
                .types = {kBooleans, kEverything},
                .kind = OpKind::kControl,
                .selects = 0b1},
               infer_if, run_if),
      // Loop, ai.onnx 1, 11, 13, 16, 19, 21, 23, 24, 25: repeats a body while a condition holds, up to a trip count;
      // either may be absent. Results are the last loop-carried values, then the stacked outputs of all iterations
      // (tensors only).
      fixed_op({.name = "Loop",
                .inputs = {2, kAnyNumber},
                .outputs = {1, kAnyNumber},
                .types = {kIndices, kBooleans, kEverything},
                .kind = OpKind::kControl,
                .body_input = body_input_of_loop},
               infer_loop, run_loop),
      // Scan, ai.onnx 8 (a batch in front, sequence_lens), 9, 11, 16, 19, 21, 23, 24, 25 (axes and directions): runs a
      // body over the entries of sequences. Results are the last states, then the stacked outputs.
      fixed_op({.name = "Scan",
                .since_version = 8,
                .inputs = {1, kAnyNumber},
                .outputs = {1, kAnyNumber},
                .kind = OpKind::kControl,
                .body_input = body_input_of_scan},
               infer_scan, run_scan),
  };
}

}  // namespace ulpscope::ops
