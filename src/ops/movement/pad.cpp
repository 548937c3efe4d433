// Pad, ai.onnx 2 (pads, value: attributes), 11, 13 (inputs), 18 (axes), 19 (wrap), 21, 23, 24, 25. Negative pads crop,
// before anything is added; reflect and wrap repeat as often as needed, as numpy.pad does.
#include <algorithm>
#include <numeric>

#include "ops/adjoint_linear.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

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
  if (ctx.has_input(3)) axes = normalize_axes(ctx, integers_of(ctx, 3), static_cast<std::int64_t>(rank));
  if (pads->size() != 2 * axes.size())
    ctx.fail(fmt::format("{} pads for {} axes; two per axis are needed", pads->size(), axes.size()));
  Pads result{std::vector<std::int64_t>(rank, 0), std::vector<std::int64_t>(rank, 0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    result.begin[static_cast<std::size_t>(axes[i])] = (*pads)[i];
    result.end[static_cast<std::size_t>(axes[i])] = (*pads)[i + axes.size()];
  }
  return result;
}

void infer_pad(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const std::string mode = ctx.attributes().text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    ctx.fail(fmt::format("expected mode constant, reflect, edge or wrap, got '{}'", mode));
  Shape shape = ctx.shape(0);
  const Pads pads = pads_of(ctx);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = shape[d];
    if (__builtin_add_overflow(size, pads.begin[d], &shape[d]) ||
        __builtin_add_overflow(shape[d], pads.end[d], &shape[d]) || shape[d] < 0 || pads.begin[d] < -size ||
        pads.end[d] < -size)
      ctx.fail(fmt::format("pads {} and {} do not fit axis {} of size {}", pads.begin[d], pads.end[d], d, size));
    const bool grows = pads.begin[d] > 0 || pads.end[d] > 0;
    if (mode != "constant" && grows &&
        size + std::min<std::int64_t>(pads.begin[d], 0) + std::min<std::int64_t>(pads.end[d], 0) <= 0)
      ctx.fail(fmt::format("axis {} has no elements to repeat", d));
  }
  ctx.set_shape(0, std::move(shape));
}

/// The element of [0, size) that stands at `at`, which may be outside.
std::int64_t source_of(std::int64_t at, std::int64_t size, const std::string& mode) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, size - 1);
  const std::int64_t period = mode == "wrap" ? size : std::max<std::int64_t>(1, 2 * (size - 1));
  const std::int64_t phase = (at % period + period) % period;
  return phase < size ? phase : period - phase;
}

/// The copied part: all of the input that is not cropped.
void copy_inside(const Tensor& in, Tensor& out, const Pads& pads) {
  Shape shape = in.shape();
  const std::vector<std::int64_t> from_strides = strides_of(in.shape()), to_strides = strides_of(out.shape());
  std::int64_t from = 0, to = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    shape[d] += std::min<std::int64_t>(pads.begin[d], 0) + std::min<std::int64_t>(pads.end[d], 0);
    if (shape[d] <= 0) return;
    from -= std::min<std::int64_t>(pads.begin[d], 0) * from_strides[d];
    to += std::max<std::int64_t>(pads.begin[d], 0) * to_strides[d];
  }
  copy_strided(in.type(), element(in, from), from_strides, element(out, to), to_strides, shape);
}

/// Repeats what lies inside, one axis after the other, the last first: when an axis is treated, all rows inside of it
/// are complete along the later axes.
void repeat_along(Tensor& out, const Pads& pads, std::size_t axis, const std::string& mode) {
  const Shape& shape = out.shape();
  const std::int64_t before = std::max<std::int64_t>(pads.begin[axis], 0),
                     after = std::max<std::int64_t>(pads.end[axis], 0);
  const std::int64_t size = shape[axis] - before - after;
  const std::int64_t row = product(shape, axis + 1, shape.size());
  const std::size_t bytes = static_cast<std::size_t>(row) * size_of(out.type());
  // Only rows that are inside of the earlier axes; the others are repeated later.
  Shape outer(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  const std::int64_t count = num_elements(outer);
  for (std::int64_t o = 0; o < count; ++o) {
    std::int64_t rest = o;
    bool inside = true;
    for (std::size_t d = axis; d-- > 0;) {
      const std::int64_t at = rest % shape[d];
      rest /= shape[d];
      inside &=
          at >= std::max<std::int64_t>(pads.begin[d], 0) && at < shape[d] - std::max<std::int64_t>(pads.end[d], 0);
    }
    if (!inside) continue;
    const auto place = [&](std::int64_t i) { return element(out, (o * shape[axis] + i) * row); };
    for (std::int64_t i = 0; i < shape[axis]; ++i)
      if (i < before || i >= before + size)
        std::memcpy(place(i), place(before + source_of(i - before, size, mode)), bytes);
  }
}

void run_pad(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (out.size() == 0) return;
  const Pads pads = pads_of(ctx);
  const std::string mode = ctx.attributes().text("mode", "constant");
  if (mode == "constant") {
    Tensor value = Tensor::scalar(ctx.attributes().real("value", 0.0f));
    if (ctx.has_input(2) && ctx.input(2).size() > 1)
      ctx.fail(fmt::format("expected one constant_value, got {}", ctx.input(2).size()));
    if (ctx.has_input(2) && ctx.input(2).size() == 1) value = ctx.input(2);
    if (value.type() != out.type()) value = value.cast(out.type());
    fill_elements(out.type(), out.raw(), out.size(), value.raw());
  }
  copy_inside(in, out, pads);
  if (mode != "constant")
    for (std::size_t axis = in.shape().size(); axis-- > 0;) repeat_along(out, pads, axis, mode);
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
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t before = std::max<std::int64_t>(pads.begin[d], 0),
                       cut = std::min<std::int64_t>(pads.begin[d], 0);
    const std::int64_t size = shape[d] + cut + std::min<std::int64_t>(pads.end[d], 0), outputs = ctx.output_shape(0)[d];
    if (outputs == shape[d] && before == 0 && cut == 0) continue;
    Tensor matrix(DataType::kFloat64, {outputs, shape[d]});
    double* weights = matrix.data<double>();
    std::fill_n(weights, matrix.size(), 0.0);
    for (std::int64_t o = 0; o < outputs; ++o) weights[o * shape[d] + source_of(o - before, size, mode) - cut] = 1;
    g = transposed_along_axis(g, matrix, static_cast<std::int64_t>(d));
  }
  ctx.set(0, g.id);
}

}  // namespace

OpDef pad() {
  return {.name = "Pad",
          .inputs = {1, 4},
          .types = {kEverything, kIndices, kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b1110,
          .infer = infer_pad,
          .run = run_pad,
          .adjoint = adjoint_pad};
}

}  // namespace ulpscope::ops
