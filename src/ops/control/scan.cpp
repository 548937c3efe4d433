// Scan, ai.onnx 8 (a batch in front, sequence_lens), 9, 11, 16, 19, 21, 23, 24, 25 (axes and directions): runs a body
// over the entries of sequences. Results are the last states, then the stacked outputs.
#include "ops/control/subgraphs.h"

namespace ulpscope::ops {
namespace {

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
    ctx.fail(
        fmt::format("num_scan_inputs {} does not fit a body with {} inputs and {} outputs", scans, formals, results));
  ScanPlan plan;
  plan.scans = static_cast<std::size_t>(scans);
  plan.states = formals - plan.scans;
  plan.outputs = results - plan.states;
  const bool batched = ctx.opset() < 9;
  plan.first = batched ? 1 : 0;
  const auto list = [&](std::string_view name, std::size_t size) {
    std::vector<std::int64_t> values = ctx.attributes().integers(name);
    if (values.empty()) values.assign(size, 0);
    if (values.size() != size) ctx.fail(fmt::format("{} has {} entries, expected {}", name, values.size(), size));
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
      ctx.fail(fmt::format("scanned input {} has {} entries, expected {}", k, size, length));
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
  if (shape.size() < 2)
    ctx.fail(fmt::format("expected sequences of shape (batch, length, ...), got {}", to_string(shape)));
  const std::int64_t batches = shape[0], longest = shape[1];
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batches), longest);
  if (ctx.has_input(0)) lengths = ctx.integers(0);
  if (static_cast<std::int64_t>(lengths.size()) != batches)
    ctx.fail(fmt::format("{} sequence_lens for a batch of {}", lengths.size(), batches));
  std::vector<Stack> stacks(plan.states + plan.outputs);
  const auto sample = [&](const Tensor& tensor, std::int64_t b) {
    if (tensor.rank() == 0 || tensor.shape()[0] != batches)
      ctx.fail(fmt::format("expected a batch of {}, got the shape {}", batches, to_string(tensor.shape())));
    return slice_at(tensor, 0, b);
  };
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > longest)
      ctx.fail(fmt::format("sequence {} has length {}, which is outside of [0, {}]", b, length, longest));
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
    if (!ctx.has_input(input)) ctx.fail(fmt::format("input {} is missing", input));
    (i < plan.states ? state : sequences).push_back(ctx.input(input));
  }
  std::vector<Tensor> results = plan.first == 0 ? scan_one(ctx, body, plan, std::move(state), sequences, -1)
                                                : scan_batch(ctx, body, plan, state, sequences);
  if (static_cast<std::size_t>(ctx.num_outputs()) > results.size())
    ctx.fail(fmt::format("the body yields {} outputs, the layer has {}", results.size(), ctx.num_outputs()));
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_output(i, results[static_cast<std::size_t>(i)].clone());
}

/// Opset 8 has sequence_lens in front.
BodyInput body_input_of_scan(const Layer& layer, int formal) { return {.input = formal + (layer.opset < 9 ? 1 : 0)}; }

}  // namespace

OpDef scan() {
  return {.name = "Scan",
          .since_version = 8,
          .inputs = {1, kAnyNumber},
          .outputs = {1, kAnyNumber},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kControl,
          .infer = infer_scan,
          .run = run_scan,
          .body_input = body_input_of_scan};
}

}  // namespace ulpscope::ops
