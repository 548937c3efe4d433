// Operators that cut tensors, and put something around.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/forms.h"
#include "ops/movement.h"
#include "ops/movement/padded_axes.h"
#include "ops/placing.h"

namespace ulpscope::ops {
namespace {

/// Per dimension of the input.
struct Selection {
  std::vector<std::int64_t> begin, step;
  Shape shape;
};

template <typename Context>
Selection selection(const Context& ctx) {
  const Shape& shape = shape_of(ctx, 0);
  const auto starts = attribute_or_input(ctx, "starts", 1), ends = attribute_or_input(ctx, "ends", 2);
  if (!starts || !ends) ctx.fail("starts or ends are missing");
  std::vector<std::int64_t> axes(starts->size());
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = attribute_or_input(ctx, "axes", 3)) axes = *given;
  std::vector<std::int64_t> steps(starts->size(), 1);
  if (ctx.has_input(4)) steps = ctx.input_ints(4);
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size())
    ctx.fail("{} starts, {} ends, {} axes and {} steps do not belong together", starts->size(), ends->size(),
             axes.size(), steps.size());
  axes = normalize_axes(ctx, std::move(axes), static_cast<std::int64_t>(shape.size()));

  Selection result{std::vector<std::int64_t>(shape.size(), 0), std::vector<std::int64_t>(shape.size(), 1), shape};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t d = static_cast<std::size_t>(axes[i]);
    const std::int64_t size = shape[d];
    const std::int64_t step =
        std::max(steps[i], -std::numeric_limits<std::int64_t>::max());  // so that it can be negated
    if (step == 0) ctx.fail("the step of axis {} is 0", d);
    // Backwards, an element before the first one can be an end, but no start.
    const std::int64_t highest = step > 0 ? size : std::max<std::int64_t>(size - 1, 0);
    const auto place = [&](std::int64_t at, std::int64_t lowest) {
      return std::clamp(at < 0 ? at + size : at, lowest, highest);
    };
    // The largest integers mean the end in the direction of the step, as in ONNX Runtime.
    const bool to_front = step < 0 && ((*ends)[i] == std::numeric_limits<std::int64_t>::max() ||
                                       (*ends)[i] == std::numeric_limits<std::int32_t>::max());
    const std::int64_t begin = place((*starts)[i], 0), end = to_front ? -1 : place((*ends)[i], step > 0 ? 0 : -1);
    result.begin[d] = begin;
    result.step[d] = step;
    if (size == 0)
      result.shape[d] = 0;
    else if (step > 0)
      result.shape[d] = end > begin ? (end - begin - 1) / step + 1 : 0;
    else
      result.shape[d] = begin > end ? (begin - end - 1) / -step + 1 : 0;
  }
  return result;
}

void infer_slice(InferContext& ctx) {
  ctx.set_shape(0, selection(ctx).shape);
}

void run_slice(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (ctx.output(0).size() == 0) return;
  const Selection select = selection(ctx);
  std::vector<std::int64_t> strides = strides_of(in.shape());
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    offset += select.begin[d] * strides[d];
    strides[d] = select.shape[d] == 1 ? 0 : strides[d] * select.step[d];
  }
  copy_strided(in.type(), element(in, offset), strides, ctx.output(0).raw(), select.shape);
}

void adjoint_slice(AdjointContext& ctx) {
  // Every axis: forwards, zeros between the elements of a step, zeros around.
  const Selection select = selection(ctx);
  const Shape& shape = ctx.input_shape(0);
  std::vector<std::int64_t> front(shape.size()), back(shape.size());
  Value g = gradient(ctx);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t n = select.shape[d];
    std::int64_t begin = select.begin[d], step = select.step[d];
    if (n == 0) {
      ctx.set(0, zeros(ctx, shape).id);
      return;
    }
    if (n == 1) step = 1;
    if (step < 0) {
      const auto axis = static_cast<std::int64_t>(d);
      g.id = ctx.add("Slice", {g.id, ctx.integers({-1}), ctx.integers({std::numeric_limits<std::int64_t>::min()}),
                               ctx.integers({axis}), ctx.integers({-1})});
      begin += (n - 1) * step;
      step = -step;
    }
    if (step > 1) {
      const Shape own = g.shape();
      Shape wide = own;
      wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(d) + 1, 1);
      std::vector<std::int64_t> gap(wide.size(), 0);
      gap[d + 1] = step - 1;
      Shape flat = own;
      flat[d] = n * step;
      g = pad(reshape(g, wide), std::vector<std::int64_t>(wide.size(), 0), gap);
      g = reshape(g, flat);
    }
    front[d] = begin;
    back[d] = shape[d] - begin - n * step;  // negative where the last gap reaches beyond
  }
  ctx.set(0, pad(g, front, back).id);
}

/// Per dimension of the input.
struct Pads {
  std::vector<std::int64_t> begin, end;
};

template <typename Context>
Pads pads_of(const Context& ctx) {
  const std::size_t rank = shape_of(ctx, 0).size();
  const auto pads = attribute_or_input(ctx, "pads", 1);
  if (!pads) ctx.fail("pads are missing");
  std::vector<std::int64_t> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.has_input(3)) axes = normalize_axes(ctx, ctx.input_ints(3), static_cast<std::int64_t>(rank));
  if (pads->size() != 2 * axes.size())
    ctx.fail("{} pads for {} axes; two per axis are needed", pads->size(), axes.size());
  Pads result{std::vector<std::int64_t>(rank, 0), std::vector<std::int64_t>(rank, 0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    result.begin[static_cast<std::size_t>(axes[i])] = (*pads)[i];
    result.end[static_cast<std::size_t>(axes[i])] = (*pads)[i + axes.size()];
  }
  return result;
}

void infer_pad(InferContext& ctx) {
  const std::string mode = ctx.attributes().text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    ctx.fail("expected mode constant, reflect, edge or wrap, got '{}'", mode);
  Shape shape = ctx.shape(0);
  const Pads pads = pads_of(ctx);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = shape[d];
    if (__builtin_add_overflow(size, pads.begin[d], &shape[d]) ||
        __builtin_add_overflow(shape[d], pads.end[d], &shape[d]) || shape[d] < 0 ||
        (mode != "constant" && (pads.begin[d] < -size || pads.end[d] < -size)))
      ctx.fail("pads {} and {} do not fit axis {} of size {}", pads.begin[d], pads.end[d], d, size);
    const bool grows = pads.begin[d] > 0 || pads.end[d] > 0;
    if (mode != "constant" && grows &&
        size + std::min<std::int64_t>(pads.begin[d], 0) + std::min<std::int64_t>(pads.end[d], 0) <= 0)
      ctx.fail("axis {} has no elements to repeat", d);
  }
  ctx.set_shape(0, std::move(shape));
}

/// What mode constant puts around: `given`, input 2, else the attribute.
template <typename Context>
Tensor fill_of(const Context& ctx, const Tensor* given, DataType type) {
  if (given != nullptr && given->size() > 1) ctx.fail("expected one constant_value, got {}", given->size());
  const Tensor value =
      given != nullptr && given->size() == 1 ? *given : Tensor::scalar(ctx.attributes().real("value", 0.0f));
  return value.type() == type ? value : value.cast(type);
}

void run_pad(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (out.size() == 0) return;
  const Pads pads = pads_of(ctx);
  const std::string mode = ctx.attributes().text("mode", "constant");
  const Tensor value =
      mode == "constant" ? fill_of(ctx, ctx.has_input(2) ? &ctx.input(2) : nullptr, out.type()) : Tensor();
  pad_elements(in, padded_axes(in.shape(), pads.begin, pads.end, mode), value, out);
}

/// Elements [begin, end) along an axis, the last one first. REQUIRES: begin < end.
Value reversed_slice(Value x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  AdjointContext& ctx = *x.ctx;
  const std::int64_t before = begin == 0 ? std::numeric_limits<std::int64_t>::min() : begin - 1;
  return {&ctx, ctx.add("Slice", {x.id, ctx.integers({end - 1}), ctx.integers({before}), ctx.integers({axis}),
                                  ctx.integers({-1})})};
}

/// Along one axis: `size` elements with copies of them around.
struct Ring {
  std::int64_t before, size, after;
};

/// The copies of modes reflect and wrap, from the inside out: each ring repeats those inside of it once.
std::vector<Ring> rings_of(Ring all, std::int64_t period, bool wraps) {
  std::vector<Ring> rings;
  for (std::int64_t size = all.size; all.before > 0 || all.after > 0;) {
    // Whole periods, so that the next ring finds at its ends what this one found.
    const std::int64_t reach = (wraps ? size : size - 1) / period * period;
    const Ring ring{std::min(all.before, reach), size, std::min(all.after, reach)};
    rings.push_back(ring);
    all.before -= ring.before;
    all.after -= ring.after;
    size += ring.before + ring.after;
  }
  return rings;
}

/// Adds the gradients of a ring to those of the elements that it repeats.
Value fold_ring(Value g, const Ring& ring, std::int64_t period, bool wraps, std::int64_t axis) {
  const std::size_t rank = g.shape().size(), d = static_cast<std::size_t>(axis);
  const std::int64_t end = ring.before + ring.size, whole = ring.size / period * period;
  Value sum = slice(g, axis, ring.before, end);
  const auto add = [&](std::int64_t begin, std::int64_t count, std::int64_t place) {
    if (count == 0) return;
    std::vector<std::int64_t> front(rank, 0), back(rank, 0);
    front[d] = place;
    back[d] = ring.size - count - place;
    const Value part = wraps ? slice(g, axis, begin, begin + count) : reversed_slice(g, axis, begin, begin + count);
    sum = sum + pad(part, front, back);
  };
  add(0, ring.before, wraps ? whole - ring.before : 1);
  add(end, ring.after, wraps ? ring.size - whole : ring.size - 1 - ring.after);
  return sum;
}

/// The ends take the sums of their copies.
Value fold_edges(Value g, const Ring& ring, std::int64_t axis) {
  const std::int64_t last = ring.before + ring.size - 1, all = last + 1 + ring.after;
  if (ring.size == 1) return sum(g, {axis});
  std::vector<Value> parts{sum(slice(g, axis, 0, ring.before + 1), {axis})};
  if (ring.size > 2) parts.push_back(slice(g, axis, ring.before + 1, last));
  parts.push_back(sum(slice(g, axis, last, all), {axis}));
  return concat(*g.ctx, parts, axis);
}

/// The gradient of what a mode other than constant puts copies around.
Value fold(Value g, const Ring& ring, const std::string& mode, std::int64_t axis) {
  if (ring.before == 0 && ring.after == 0) return g;
  if (mode == "edge" || ring.size == 1) return fold_edges(g, ring, axis);
  const bool wraps = mode == "wrap";
  const std::int64_t period = wraps ? ring.size : ring.size - 1;
  const std::vector<Ring> rings = rings_of(ring, period, wraps);
  for (auto each = rings.rbegin(); each != rings.rend(); ++each) g = fold_ring(g, *each, period, wraps, axis);
  return g;
}

void adjoint_pad(AdjointContext& ctx) {
  const Pads pads = pads_of(ctx);
  const Shape& shape = ctx.input_shape(0);
  const std::string mode = ctx.attributes().text("mode", "constant");
  Value g = gradient(ctx);
  std::vector<std::int64_t> front, back;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    front.push_back(-pads.begin[d]);
    back.push_back(-pads.end[d]);
  }
  if (mode == "constant") {
    const Value inside = pad(g, front, back);
    if (ctx.wants(0)) ctx.set(0, inside.id);
    if (!ctx.wants(2)) return;
    // What was cropped has no part in it, and neither has what was kept.
    for (std::size_t d = 0; d < shape.size(); ++d) {
      front[d] = std::min<std::int64_t>(front[d], 0);
      back[d] = std::min<std::int64_t>(back[d], 0);
    }
    const auto total = [&](Value x) { return sum_to(x, {}); };
    return ctx.set(2, reshape(total(g) - total(pad(g, front, back)), ctx.input_shape(2)).id);
  }
  if (num_elements(ctx.output_shape(0)) == 0) return ctx.set(0, zeros(ctx, shape).id);
  // What was cropped is 0; what is left was repeated.
  for (std::size_t d = 0; d < shape.size(); ++d) {
    front[d] = std::max<std::int64_t>(front[d], 0);
    back[d] = std::max<std::int64_t>(back[d], 0);
    const Ring ring{std::max<std::int64_t>(pads.begin[d], 0), shape[d] - front[d] - back[d],
                    std::max<std::int64_t>(pads.end[d], 0)};
    g = fold(g, ring, mode, static_cast<std::int64_t>(d));
  }
  ctx.set(0, pad(g, front, back).id);
}

// Inputs: input_data, shape (of all axes, or of those in the attribute `axes`).
template <typename Context>
Shape centered_shape(const Context& ctx) {
  Shape shape = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  std::vector<std::int64_t> axes = ctx.attributes().ints("axes");
  if (!ctx.attributes().has("axes")) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = normalize_axes(ctx, axes, rank);
  const auto sizes = ctx.input_ints(1);
  if (sizes.size() != axes.size()) ctx.fail("expected {} sizes, one per axis, got {}", axes.size(), sizes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (sizes[i] < 0) ctx.fail("expected sizes >= 0, got {}", sizes[i]);
    shape[static_cast<std::size_t>(axes[i])] = sizes[i];
  }
  return shape;
}

/// Those that bring shapes of equal rank from one to the other, the same on both sides or one more behind.
Pads pads_of_centered(const Shape& from, const Shape& to) {
  Pads pads;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::int64_t more = to[d] - from[d];
    pads.begin.push_back(more / 2);
    pads.end.push_back(more - more / 2);
  }
  return pads;
}

void infer_center_crop_pad(InferContext& ctx) {
  ctx.set_shape(0, centered_shape(ctx));
}

void run_center_crop_pad(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const auto in_strides = strides_of(in.shape()), out_strides = strides_of(out.shape());
  const std::uint64_t zero = 0;
  fill_elements(out.type(), out.raw(), out.size(), &zero);
  Shape common;
  std::int64_t from = 0, to = 0;
  for (std::size_t d = 0; d < out.shape().size(); ++d) {
    const std::int64_t a = in.shape()[d], b = out.shape()[d];
    common.push_back(std::min(a, b));
    if (a > b)
      from += (a - b) / 2 * in_strides[d];
    else
      to += (b - a) / 2 * out_strides[d];
  }
  if (num_elements(common) == 0) return;
  copy_strided(out.type(), element(in, from), in_strides, element(out, to), out_strides, common);
}

void adjoint_center_crop_pad(AdjointContext& ctx) {
  const Pads pads = pads_of_centered(ctx.output_shape(0), ctx.input_shape(0));
  ctx.set(0, pad(gradient(ctx), pads.begin, pads.end).id);
}

/// What an operator is told of input 0, and the values of the others; nothing where one of these is not known.
std::optional<std::vector<InferContext::Input>> known_parameters(const Layer& layer, const Shape& input, DataType type,
                                                                 std::span<const Tensor* const> values) {
  std::vector<InferContext::Input> inputs(layer.inputs.size());
  inputs[0] = {true, type, &input};
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (layer.inputs[i] == kNone) continue;
    if (values[i] == nullptr) return std::nullopt;
    inputs[i] = {true, values[i]->type(), &values[i]->shape(), values[i]};
  }
  return inputs;
}

}  // namespace

std::optional<Cut> cut_of_slice(const Layer& layer, const Shape& input, std::span<const Tensor* const> values) {
  if (layer.op->infer != infer_slice) return std::nullopt;
  const auto inputs = known_parameters(layer, input, DataType::kFloat32, values);
  if (!inputs) return std::nullopt;
  Selection select = selection(InferContext(layer, *inputs, {}));
  return Cut{std::move(select.begin), std::move(select.step)};
}

std::optional<Placed> placed_axes(const Layer& layer, const Shape& input, DataType type,
                                  std::span<const Tensor* const> values) {
  const bool pads_input = layer.op->infer == infer_pad;
  if (!pads_input && layer.op->infer != infer_center_crop_pad) return std::nullopt;
  const auto inputs = known_parameters(layer, input, type, values);
  if (!inputs) return std::nullopt;
  const InferContext ctx(layer, *inputs, {});
  const Pads pads = pads_input ? pads_of(ctx) : pads_of_centered(input, centered_shape(ctx));
  const std::string mode = pads_input ? ctx.attributes().text("mode", "constant") : "constant";
  Placed result;
  result.fill =
      pads_input ? fill_of(ctx, ctx.has_input(2) ? values[2] : nullptr, type) : Tensor::scalar(0.0f).cast(type);
  const std::vector<PaddedAxis> axes = padded_axes(input, pads.begin, pads.end, mode);
  for (std::size_t d = 0; d < input.size(); ++d) {
    const std::int64_t output = axes[d].length();
    if (pads.begin[d] == 0 && pads.end[d] == 0) continue;
    if (std::max(input[d], output) > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    PlacedAxis& axis = result.axes.emplace_back(static_cast<std::int64_t>(d), Tensor(DataType::kInt32, {output}));
    for (std::int64_t i = 0; i < output; ++i)
      axis.index.data<std::int32_t>()[i] = static_cast<std::int32_t>(axes[d].source(i));
  }
  return result;
}

OpTable slicing() {
  return {
      // Slice, ai.onnx 1 (starts, ends, axes: attributes), 10, 11, 13 (inputs, with steps): NumPy's basic slicing.
      movement_op({.name = "Slice",
                   .inputs = {1, 5},
                   .types = {kEverything, kIndices},
                   .weights = 0b11110,
                   .moves_values = true},
                  infer_slice, run_slice, adjoint_slice),
      // Pad, ai.onnx 2 (pads, value: attributes), 11, 13 (inputs), 18 (axes), 19 (wrap), 21, 23, 24, 25. Negative pads
      // crop, before anything is added; reflect and wrap repeat as often as needed, as numpy.pad does.
      movement_op({.name = "Pad",
                   .inputs = {1, 4},
                   .types = {kEverything, kIndices, kEverything, kIndices},
                   .function = Function::kPad,
                   .weights = 0b1110},
                  infer_pad, run_pad, adjoint_pad),
      // CenterCropPad, ai.onnx 18: cuts or zero-pads around the center to a given size.
      movement_op({.name = "CenterCropPad",
                   .since_version = 18,
                   .inputs = {2, 2},
                   .types = {kEverything, kIndices},
                   .weights = 0b10},
                  infer_center_crop_pad, run_center_crop_pad, adjoint_center_crop_pad),
  };
}

}  // namespace ulpscope::ops
