// Operators that give the elements another order, join and split tensors.
#include <algorithm>
#include <array>
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/forms.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

/// The required attribute `axis` of Concat.
template <typename Context>
std::size_t joined_axis(const Context& ctx) {
  ctx.attributes().required_integer("axis");
  return axis_of(ctx, 0);
}

void infer_concat(InferContext& ctx) {
  for (int i = 1; i < ctx.num_inputs(); ++i)
    if (ctx.type(i) != ctx.type(0) && ctx.type(i) != DataType::kUndefined && ctx.type(0) != DataType::kUndefined)
      ctx.fail("input {} has elements of type {}, input 0 of type {}", i, name_of(ctx.type(i)), name_of(ctx.type(0)));
  if (!ctx.has_shape(0)) return;
  Shape result = ctx.shape(0);
  const std::size_t axis = joined_axis(ctx);
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    const Shape& shape = ctx.shape(i);
    bool fits = shape.size() == result.size();
    for (std::size_t d = 0; fits && d < shape.size(); ++d) fits = d == axis || shape[d] == result[d];
    if (!fits)
      ctx.fail("input {} of shape {} does not fit {} along axis {}", i, to_string(shape), to_string(ctx.shape(0)),
               axis);
    result[axis] += shape[axis];
  }
  ctx.set_shape(0, std::move(result));
}

void run_concat(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const std::size_t axis = joined_axis(ctx);
  const std::int64_t outer = product(out.shape(), 0, axis), inner = product(out.shape(), axis, out.shape().size());
  std::int64_t at = 0;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const Tensor& in = ctx.input(i);
    const std::int64_t width = product(in.shape(), axis, in.shape().size());
    const std::array from{width, std::int64_t{1}}, to{inner, std::int64_t{1}};
    copy_strided(in.type(), in.raw(), from, element(out, at), to, {outer, width});
    at += width;
  }
}

void adjoint_concat(AdjointContext& ctx) {
  const std::size_t axis = joined_axis(ctx);
  const Value g = gradient(ctx);
  std::int64_t at = 0;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const std::int64_t size = ctx.input_shape(i)[axis];
    if (ctx.wants(i)) ctx.set(i, slice(g, static_cast<std::int64_t>(axis), at, at + size).id);
    at += size;
  }
}

/// How many equal parts there are. The last ones may be shorter, or no outputs.
template <typename Context>
std::int64_t num_parts(const Context& ctx) {
  return ctx.attributes().integer("num_outputs", ctx.num_outputs());
}

std::int64_t equal_part(std::int64_t size, std::int64_t parts) { return size / parts + (size % parts != 0 ? 1 : 0); }

std::vector<std::int64_t> part_sizes(const InferContext& ctx, std::int64_t size) {
  const std::int64_t parts = ctx.num_outputs();
  if (const auto sizes = attribute_or_input(ctx, "split", 1)) {
    std::int64_t sum = 0;
    for (std::int64_t part : *sizes) {
      if (part < 0 || part > size) ctx.fail("a part of {} does not fit into a dimension of {}", part, size);
      sum += part;
    }
    if (static_cast<std::int64_t>(sizes->size()) != parts || sum != size)
      ctx.fail("parts of ({}) do not cut a dimension of {} into {} outputs", fmt::join(*sizes, ", "), size, parts);
    return *sizes;
  }
  if (num_parts(ctx) < parts) ctx.fail("num_outputs is {}, but the layer has {} outputs", num_parts(ctx), parts);
  if (ctx.opset() < 18 && size % parts != 0)
    ctx.fail("a dimension of {} cannot be cut into {} equal parts", size, parts);
  const std::int64_t part = equal_part(size, num_parts(ctx));
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts));
  for (std::int64_t& s : sizes) {
    s = std::min(part, size);
    size -= s;
  }
  return sizes;
}

void infer_split(InferContext& ctx) {
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_type(i, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const std::size_t axis = axis_of(ctx, 0);
  const std::vector<std::int64_t> sizes = part_sizes(ctx, shape[axis]);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    Shape part = shape;
    part[axis] = sizes[static_cast<std::size_t>(i)];
    ctx.set_shape(i, std::move(part));
  }
}

/// Where each output begins along the axis, and where the last one ends. Outputs that nobody wants have no tensor, so
/// the sizes are found anew.
template <typename Context>
std::vector<std::int64_t> part_begins(const Context& ctx, std::int64_t size) {
  const auto sizes = attribute_or_input(ctx, "split", 1);
  const std::int64_t equal = sizes ? 0 : equal_part(size, num_parts(ctx));
  std::vector<std::int64_t> begins(static_cast<std::size_t>(ctx.num_outputs()) + 1, 0);
  for (std::size_t i = 1; i < begins.size(); ++i)
    begins[i] = std::min(size, begins[i - 1] + (sizes ? (*sizes)[i - 1] : equal));
  return begins;
}

void run_split(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::size_t axis = axis_of(ctx, 0);
  const auto [outer, size, row] = around(in.shape(), axis);
  const std::vector<std::int64_t> begins = part_begins(ctx, size);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (!ctx.has_output(i)) continue;
    Tensor& out = ctx.output(i);
    const std::int64_t width = out.shape()[axis] * row;
    const std::array from{size * row, std::int64_t{1}};
    copy_strided(in.type(), element(in, begins[static_cast<std::size_t>(i)] * row), from, out.raw(), {outer, width});
  }
}

void adjoint_split(AdjointContext& ctx) {
  const Shape& shape = ctx.input_shape(0);
  const auto axis = axis_of(ctx, 0);
  const std::vector<std::int64_t> begins = part_begins(ctx, shape[axis]);
  std::vector<Value> parts;
  Shape part = shape;
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    part[axis] = begins[at + 1] - begins[at];
    parts.push_back(ctx.gradient(i) != kNone ? Value{&ctx, ctx.gradient(i)} : zeros(ctx, part));
  }
  part[axis] = shape[axis] - begins.back();
  if (part[axis] > 0) parts.push_back(zeros(ctx, part));
  ctx.set(0, concat(ctx, parts, static_cast<std::int64_t>(axis)).id);
}

template <typename Context>
std::vector<std::int64_t> permutation_of(const Context& ctx, std::int64_t rank) {
  if (!ctx.attributes().has("perm")) {
    std::vector<std::int64_t> reversed(static_cast<std::size_t>(rank));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return reversed;
  }
  std::vector<std::int64_t> perm = ctx.attributes().required_ints("perm");
  if (static_cast<std::int64_t>(perm.size()) != rank)
    ctx.fail("perm ({}) has {} entries for an input of rank {}", fmt::join(perm, ", "), perm.size(), rank);
  return normalize_axes(ctx, std::move(perm), rank);
}

void infer_transpose(InferContext& ctx) {
  if (!ctx.has_shape(0)) return;
  const Shape& shape = ctx.shape(0);
  Shape result;
  for (std::int64_t d : permutation_of(ctx, ctx.rank(0))) result.push_back(shape[static_cast<std::size_t>(d)]);
  ctx.set_shape(0, std::move(result));
}

void run_transpose(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  copy_permuted(in, in.shape(), permutation_of(ctx, in.rank()), ctx.output(0));
}

void adjoint_transpose(AdjointContext& ctx) {
  const auto rank = static_cast<std::int64_t>(ctx.input_shape(0).size());
  const std::vector<std::int64_t> perm = permutation_of(ctx, rank);
  ctx.set(0, transpose(gradient(ctx), inverse_permutation(perm)).id);
}

/// DepthToSpace and SpaceToDepth, between (n, depth * block^2, height, width) and (n, depth, height * block, width *
/// block).
struct SpaceBlocks {
  std::int64_t n, depth, height, width, block;
  bool depth_first;  ///< Mode DCR: among the channels, the place in the block goes before the depth.

  /// The channels split, and the space split; the permutations from one to the other.
  Shape channels() const {
    return depth_first ? Shape{n, block, block, depth, height, width} : Shape{n, depth, block, block, height, width};
  }
  Shape space() const { return {n, depth, height, block, width, block}; }
  std::vector<std::int64_t> to_space() const { return depth_first ? Shape{0, 3, 4, 1, 5, 2} : Shape{0, 1, 4, 2, 5, 3}; }
  std::vector<std::int64_t> to_depth() const { return depth_first ? Shape{0, 3, 5, 1, 2, 4} : Shape{0, 1, 3, 5, 2, 4}; }
};

template <typename Context>
SpaceBlocks blocks_of(const Context& ctx, bool from_channels) {
  const Shape& s = shape_of(ctx, 0);
  const std::string mode = ctx.attributes().text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") ctx.fail("expected mode DCR or CRD, got '{}'", mode);
  const std::int64_t block = ctx.attributes().required_integer("blocksize");
  if (block < 1 || block > 1 << 20) ctx.fail("expected a blocksize of 1 to 2^20, got {}", block);
  if (from_channels) {
    if (s.size() != 4 || s[1] % (block * block) != 0)
      ctx.fail("cannot spread the channels of {} over blocks of {} x {}", to_string(s), block, block);
    return {s[0], s[1] / (block * block), s[2], s[3], block, mode == "DCR"};
  }
  if (s.size() != 4 || s[2] % block != 0 || s[3] % block != 0)
    ctx.fail("cannot cut the space of {} into blocks of {} x {}", to_string(s), block, block);
  return {s[0], s[1], s[2] / block, s[3] / block, block, mode == "DCR"};
}

void infer_depth_to_space(InferContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, true);
  ctx.set_shape(0, {b.n, b.depth, b.height * b.block, b.width * b.block});
}

void run_depth_to_space(KernelContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, true);
  copy_permuted(ctx.input(0), b.channels(), b.to_space(), ctx.output(0));
}

void adjoint_depth_to_space(AdjointContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, true);
  ctx.set(0, reshape(transpose(reshape(gradient(ctx), b.space()), b.to_depth()), ctx.input_shape(0)).id);
}

void infer_space_to_depth(InferContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, false);
  ctx.set_shape(0, {b.n, b.depth * b.block * b.block, b.height, b.width});
}

void run_space_to_depth(KernelContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, false);
  copy_permuted(ctx.input(0), b.space(), b.to_depth(), ctx.output(0));
}

void adjoint_space_to_depth(AdjointContext& ctx) {
  const SpaceBlocks b = blocks_of(ctx, false);
  ctx.set(0, reshape(transpose(reshape(gradient(ctx), b.channels()), b.to_space()), ctx.input_shape(0)).id);
}

void infer_reverse_sequence(InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  const std::int64_t batch_axis = ctx.attributes().integer("batch_axis", 1),
                     time_axis = ctx.attributes().integer("time_axis", 0);
  if (shape.size() < 2 || batch_axis < 0 || batch_axis > 1 || time_axis != 1 - batch_axis)
    ctx.fail("batch axis {} and time axis {} are not the first two of {}", batch_axis, time_axis, to_string(shape));
  const Shape expected{shape[static_cast<std::size_t>(batch_axis)]};
  if (ctx.shape(1) != expected)
    ctx.fail("expected sequence_lens of shape {}, got {}", to_string(expected), to_string(ctx.shape(1)));
  ctx.set_shape(0, shape);
}

void run_reverse_sequence(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const bool batch_first = ctx.attributes().integer("batch_axis", 1) == 0;
  const std::int64_t batches = in.shape()[batch_first ? 0 : 1], times = in.shape()[batch_first ? 1 : 0];
  const std::int64_t row = product(in.shape(), 2, in.shape().size());
  const std::vector<std::int64_t> lengths = ctx.input_ints(1);
  const std::size_t bytes = static_cast<std::size_t>(row) * size_of(in.type());
  const auto place = [&](std::int64_t b, std::int64_t t) {
    return (batch_first ? b * times + t : t * batches + b) * row;
  };
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > times)
      ctx.fail("sequence {} has length {}, which is outside of [0, {}]", b, length, times);
    for (std::int64_t t = 0; t < times && bytes != 0; ++t)
      std::memcpy(element(out, place(b, t)), element(in, place(b, t < length ? length - 1 - t : t)), bytes);
  }
}

void adjoint_reverse_sequence(AdjointContext& ctx) {
  const std::int64_t batch_axis = ctx.attributes().integer("batch_axis", 1);
  ctx.set(0, ctx.add("ReverseSequence", {ctx.gradient(0), ctx.input(1)},
                     {{"batch_axis", batch_axis}, {"time_axis", 1 - batch_axis}}));
}

}  // namespace

std::optional<std::int64_t> split_axis(const Layer& layer, std::int64_t rank) {
  if (layer.op->infer != infer_split) return std::nullopt;
  const std::int64_t axis = layer.attributes.integer("axis", 0);
  return axis < 0 ? axis + rank : axis;
}

OpTable arranging() {
  return {
      // Concat, ai.onnx 1, 4, 11, 13: joins tensors along an axis.
      movement_op({.name = "Concat", .inputs = {1, kAnyNumber}, .types = {kEverything}, .function = Function::kConcat},
                  infer_concat, run_concat, adjoint_concat),
      // Split, ai.onnx 1, 2, 11 (sizes: attribute `split`), 13 (sizes: input), 18 (or num_outputs): cuts along an axis.
      movement_op({.name = "Split",
                   .inputs = {1, 2},
                   .outputs = {1, kAnyNumber},
                   .types = {kEverything, kIndices},
                   .weights = 0b10,
                   .moves_values = true},
                  infer_split, run_split, adjoint_split),
      // Transpose, ai.onnx 1, 13, 21, 23, 24, 25: permutes dimensions.
      movement_op({.name = "Transpose", .types = {kEverything}, .function = Function::kTranspose, .moves_values = true},
                  infer_transpose, run_transpose, adjoint_transpose),
      // DepthToSpace, ai.onnx 1, 11, 13, 28: moves channels into blocks of space, in the order of mode DCR or CRD.
      movement_op({.name = "DepthToSpace", .types = {kEverything}, .moves_values = true}, infer_depth_to_space,
                  run_depth_to_space, adjoint_depth_to_space),
      // SpaceToDepth, ai.onnx 1, 13, 28 (mode): moves blocks of space into channels, in the order of mode DCR or CRD.
      movement_op({.name = "SpaceToDepth", .types = {kEverything}, .moves_values = true}, infer_space_to_depth,
                  run_space_to_depth, adjoint_space_to_depth),
      // ReverseSequence, ai.onnx 10, 28: reverses the first sequence_lens[b] entries of each sequence b.
      movement_op({.name = "ReverseSequence",
                   .since_version = 10,
                   .inputs = {2, 2},
                   .types = {kEverything, kIndices},
                   .moves_values = true},
                  infer_reverse_sequence, run_reverse_sequence, adjoint_reverse_sequence),
  };
}

}  // namespace ulpscope::ops
