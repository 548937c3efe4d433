// Operators that give the elements another shape, repeat them or choose among them.
#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/placing.h"

namespace ulpscope::ops {
namespace {

Shape target_shape(const InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  Shape target = ctx.input_ints(1);
  const bool zero_is_zero = ctx.attributes().integer("allowzero", 0) != 0;
  const Shape wanted = target;
  std::optional<std::size_t> open;
  std::int64_t known = 1;
  bool has_zero = false;
  for (std::size_t d = 0; d < target.size(); ++d) {
    if (target[d] == 0 && !zero_is_zero) {
      if (d >= shape.size())
        ctx.fail("dimension {} of the new shape {} copies one that the input of shape {} does not have", d,
                 to_string(wanted), to_string(shape));
      target[d] = shape[d];
    }
    if (target[d] == -1) {
      if (open) ctx.fail("the new shape {} leaves more than one dimension open", to_string(wanted));
      open = d;
      continue;
    }
    if (target[d] < 0) ctx.fail("the new shape {} has a negative dimension", to_string(wanted));
    has_zero |= target[d] == 0;
    if (__builtin_mul_overflow(known, target[d], &known)) ctx.fail("the new shape {} is too large", to_string(wanted));
  }
  const std::int64_t count = num_elements(shape);
  if (open) {
    if (zero_is_zero && has_zero)
      ctx.fail("the new shape {} has both 0 and -1, which allowzero forbids", to_string(wanted));
    if (known == 0) {
      if (count != 0) ctx.fail("cannot reshape {} elements of {} to {}", count, to_string(shape), to_string(wanted));
      target[*open] = 0;
      return target;
    }
    target[*open] = count / known;
    known *= target[*open];
  }
  if (known != count) ctx.fail("cannot reshape {} of {} elements to {}", to_string(shape), count, to_string(wanted));
  return target;
}

void infer_reshape(InferContext& ctx) {
  if (ctx.has_shape(0)) ctx.set_shape(0, target_shape(ctx));
}

void infer_flatten(InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  const std::int64_t rank = ctx.rank(0);
  std::int64_t axis = ctx.attributes().integer("axis", 1);
  if (axis < -rank || axis > rank) ctx.fail("axis {} is outside of [{}, {}]", axis, -rank, rank);
  if (axis < 0) axis += rank;
  ctx.set_shape(0, {product(shape, 0, static_cast<std::size_t>(axis)),
                    product(shape, static_cast<std::size_t>(axis), shape.size())});
}

void infer_squeeze(InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  std::vector<bool> dropped(shape.size(), false);
  if (const auto axes = attribute_or_input(ctx, "axes", 1)) {
    for (std::int64_t axis : normalize_axes(ctx, *axes, ctx.rank(0))) {
      const std::size_t d = static_cast<std::size_t>(axis);
      if (shape[d] != 1) ctx.fail("cannot drop axis {} of {}: its size is not 1", axis, to_string(shape));
      dropped[d] = true;
    }
  } else {
    for (std::size_t d = 0; d < shape.size(); ++d) dropped[d] = shape[d] == 1;
  }
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!dropped[d]) result.push_back(shape[d]);
  ctx.set_shape(0, std::move(result));
}

void infer_unsqueeze(InferContext& ctx) {
  if (!ctx.has_shape(0)) return;
  const Shape& shape = ctx.shape(0);
  const auto given = attribute_or_input(ctx, "axes", 1);
  if (!given) ctx.fail("axes are missing");
  const std::size_t rank = shape.size() + given->size();
  std::vector<bool> inserted(rank, false);
  for (std::int64_t axis : normalize_axes(ctx, *given, static_cast<std::int64_t>(rank)))
    inserted[static_cast<std::size_t>(axis)] = true;
  Shape result(rank, 1);
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d)
    if (!inserted[d]) result[d] = shape[next++];
  ctx.set_shape(0, std::move(result));
}

/// A row of an operator that changes the shape alone.
OpDef view_op(OpDef op, Infer infer) {
  op.moves_values = true;
  op.views = true;
  return movement_op(op, infer, run_copy, view_adjoint);
}

void infer_expand(InferContext& ctx) {
  const Shape target = ctx.input_ints(1);
  for (std::int64_t dim : target)
    if (dim < 0) ctx.fail("cannot expand to {}", to_string(target));
  ctx.set_shape(0, broadcast_or_fail(ctx, ctx.shape(0), target));
}

void run_expand(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  copy_strided(in.type(), in.raw(), broadcast_strides(in.shape(), out.shape()), out.raw(), out.shape());
}

void adjoint_expand(AdjointContext& ctx) { set(ctx, 0, gradient(ctx)); }

void infer_tile(InferContext& ctx) {
  Shape shape = ctx.shape(0);
  const std::vector<std::int64_t> repeats = ctx.input_ints(1);
  if (repeats.size() != shape.size()) ctx.fail("{} repeats for an input of rank {}", repeats.size(), shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (repeats[d] < 0) ctx.fail("cannot repeat axis {} {} times", d, repeats[d]);
    if (__builtin_mul_overflow(shape[d], repeats[d], &shape[d]))
      ctx.fail("axis {} repeated {} times is too large", d, repeats[d]);
  }
  ctx.set_shape(0, std::move(shape));
}

void run_tile(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (out.size() == 0) return;
  // Every dimension becomes two: the repetition, along which the input stands still, and the dimension itself.
  const std::vector<std::int64_t> dense = strides_of(in.shape());
  Shape shape;
  std::vector<std::int64_t> strides;
  for (std::size_t d = 0; d < dense.size(); ++d) {
    shape.insert(shape.end(), {out.shape()[d] / in.shape()[d], in.shape()[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  copy_strided(in.type(), in.raw(), strides, out.raw(), shape);
}

void adjoint_tile(AdjointContext& ctx) {
  const Shape &in = ctx.input_shape(0), &out = ctx.output_shape(0);
  if (num_elements(in) == 0) return;
  Shape split;
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(2 * d));
    split.insert(split.end(), {out[d] / in[d], in[d]});
  }
  ctx.set(0, reshape(sum(reshape(gradient(ctx), split), axes), in).id);
}

void infer_where(InferContext& ctx) {
  ctx.set_type(0, ctx.type(1));
  require_type(ctx, 0, DataType::kBool);
  require_type(ctx, 2, ctx.type(1));
  ctx.set_shape(0, broadcast_or_fail(ctx, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(1)), ctx.shape(2)));
}

/// Without a branch, which conditions that vary would mispredict. A step of 0 or 1 that compilers know.
template <typename Word, std::int64_t x_step, std::int64_t y_step>
void choose_row(const bool* condition, const void* x, const void* y, void* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto mask = static_cast<Word>(-static_cast<int>(condition[i]));
    const Word a = load_word<Word>(x, i * x_step), b = load_word<Word>(y, i * y_step);
    store_word(out, i, static_cast<Word>((a & mask) | (b & static_cast<Word>(~mask))));
  }
}

void run_where(KernelContext& ctx) {
  const Tensor &condition = ctx.input(0), &x = ctx.input(1), &y = ctx.input(2);
  Tensor& out = ctx.output(0);
  if (x.type() != y.type()) ctx.fail("expected one type, got {} and {}", name_of(x.type()), name_of(y.type()));
  const BroadcastRows rows(
      out.shape(), {broadcast_strides(condition.shape(), out.shape()), broadcast_strides(x.shape(), out.shape()),
                    broadcast_strides(y.shape(), out.shape())});
  const bool* choose = condition.data<bool>();
  with_word(x.type(), [&]<typename Word>(Word) {
    constexpr auto kRows =
        std::array{choose_row<Word, 0, 0>, choose_row<Word, 0, 1>, choose_row<Word, 1, 0>, choose_row<Word, 1, 1>};
    const auto choose_in = kRows[static_cast<std::size_t>(2 * rows.step(1) + rows.step(2))];
    rows.for_each([&](std::int64_t first, const std::int64_t* at) {
      const bool* chosen = choose + at[0];
      if (rows.step(0) != 0)
        return choose_in(chosen, element(x, at[1]), element(y, at[2]), element(out, first), rows.count());
      const std::size_t k = *chosen ? 1 : 2;
      const std::byte* from = element(*chosen ? x : y, at[k]);
      auto* to = reinterpret_cast<Word*>(element(out, first));
      if (rows.step(k) == 0)
        std::fill_n(to, rows.count(), load_word<Word>(from, 0));
      else
        std::memcpy(to, from, static_cast<std::size_t>(rows.count()) * sizeof(Word));
    });
  });
}

void adjoint_where(AdjointContext& ctx) {
  const Value condition = input(ctx, 0), g = gradient(ctx), none = scalar(ctx, 0);
  if (ctx.wants(1)) set(ctx, 1, where(condition, g, none));
  if (ctx.wants(2)) set(ctx, 2, where(condition, none, g));
}

void infer_trilu(InferContext& ctx) {
  if (ctx.rank(0) < 2) ctx.fail("expected matrices, got shape {}", to_string(ctx.shape(0)));
  ctx.set_shape(0, ctx.shape(0));
}

void run_trilu(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (in.size() == 0) return;
  const std::int64_t columns = in.shape().back(), rows = in.shape()[in.shape().size() - 2];
  const bool upper = ctx.attributes().integer("upper", 1) != 0;
  const std::int64_t k = std::clamp<std::int64_t>(ctx.has_input(1) ? single_integer(ctx, 1) : 0, -rows, columns);
  const std::int64_t width = static_cast<std::int64_t>(size_of(in.type()));
  parallel_each(in.size() / columns, std::max<std::int64_t>(1, (1 << 15) / columns), [&](std::int64_t i) {
    // The kept columns: [first, last).
    const std::int64_t diagonal = i % rows + k;
    const std::int64_t first = upper ? std::clamp<std::int64_t>(diagonal, 0, columns) : 0;
    const std::int64_t last = upper ? columns : std::clamp<std::int64_t>(diagonal + 1, 0, columns);
    std::byte* row = element(out, i * columns);
    std::memset(row, 0, static_cast<std::size_t>(columns * width));
    std::memcpy(row + first * width, element(in, i * columns + first),
                static_cast<std::size_t>((last - first) * width));
  });
}

void adjoint_trilu(AdjointContext& ctx) {
  const TensorId k = ctx.has_input(1) ? ctx.input(1) : kNone;
  ctx.set(0, ctx.add("Trilu", {ctx.gradient(0), k}, {{"upper", ctx.attributes().integer("upper", 1)}}));
}

}  // namespace

bool is_triangle(const Layer& layer) { return layer.op->run == run_trilu; }

OpTable views() {
  return {
      // Reshape, ai.onnx 5, 13, 14, 19, 21, 23, 24, 25: the same elements under another shape.
      view_op({.name = "Reshape", .inputs = {2, 2}, .types = {kEverything, kIndices}, .weights = 0b10}, infer_reshape),
      // Flatten, ai.onnx 1, 9, 11, 13, 21, 23, 24, 25: to a matrix, split at an axis.
      view_op({.name = "Flatten", .types = {kEverything}}, infer_flatten),
      // Squeeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): drops dimensions of size 1.
      view_op({.name = "Squeeze", .inputs = {1, 2}, .types = {kEverything, kIndices}, .weights = 0b10}, infer_squeeze),
      // Unsqueeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): inserts dimensions of size 1.
      view_op({.name = "Unsqueeze", .inputs = {1, 2}, .types = {kEverything, kIndices}, .weights = 0b10},
              infer_unsqueeze),
      // Identity, ai.onnx 1, 13, 14, 16, 19, 21, 23, 24, 25: a copy (tensors only).
      view_op({.name = "Identity", .types = {kEverything}, .function = Function::kIdentity}, infer_same_as_first),
      // Expand, ai.onnx 8, 13: broadcasts to a shape (dimensions of 1 in it keep those of the input).
      movement_op({.name = "Expand",
                   .since_version = 8,
                   .inputs = {2, 2},
                   .types = {kEverything, kIndices},
                   .weights = 0b10,
                   .moves_values = true},
                  infer_expand, run_expand, adjoint_expand),
      // Tile, ai.onnx 6, 13: repeats a tensor along each dimension.
      movement_op({.name = "Tile",
                   .since_version = 6,
                   .inputs = {2, 2},
                   .types = {kEverything, kIndices},
                   .weights = 0b10,
                   .moves_values = true},
                  infer_tile, run_tile, adjoint_tile),
      // Where, ai.onnx 9, 16: selects from two tensors by a condition, with NumPy broadcasting of all three.
      movement_op({.name = "Where",
                   .since_version = 9,
                   .inputs = {3, 3},
                   .types = {kBooleans, kEverything},
                   .function = Function::kWhere,
                   .selects = 0b1},
                  infer_where, run_where, adjoint_where),
      // Trilu, ai.onnx 14: the upper or lower triangle of matrices, from diagonal k on; zero elsewhere.
      movement_op(
          {.name = "Trilu", .since_version = 14, .inputs = {1, 2}, .types = {kEverything, kIndices}, .weights = 0b10},
          infer_trilu, run_trilu, adjoint_trilu),
  };
}

}  // namespace ulpscope::ops
