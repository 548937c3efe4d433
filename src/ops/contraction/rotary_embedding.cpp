// RotaryEmbedding, ai.onnx 23: rotates pairs of elements by angles that depend on the position in the sequence
// (Su et al., "RoFormer", 2021).
#include <algorithm>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/common.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

/// X is (batch, heads, sequence, head_size), or (batch, sequence, heads * head_size).
struct RotaryLayout {
  std::int64_t batch, heads, sequence, head_size, rotated;
  bool heads_first;
};

template <typename Context>
RotaryLayout rotary_layout(const Context& ctx, const Shape& x, const Shape& cos, const Shape& sin) {
  const Attributes& attributes = ctx.attributes();
  RotaryLayout l{};
  l.heads_first = x.size() == 4;
  if (x.size() == 4) {
    l = {x[0], x[1], x[2], x[3], 0, true};
  } else if (x.size() == 3) {
    const std::int64_t heads = attributes.integer("num_heads", 0);
    if (heads < 1 || x[2] % heads != 0)
      ctx.fail(fmt::format("'num_heads' {} does not fit an input of shape {}", heads, to_string(x)));
    l = {x[0], heads, x[1], x[2] / heads, 0, false};
  } else {
    ctx.fail(fmt::format("expected an input of rank 3 or 4, got shape {}", to_string(x)));
  }
  l.rotated = attributes.integer("rotary_embedding_dim", 0);
  if (l.rotated == 0) l.rotated = l.head_size;
  if (l.rotated % 2 != 0 || l.rotated > l.head_size || cos.empty() || cos.back() != l.rotated / 2 || cos != sin)
    ctx.fail(fmt::format("caches {} and {} do not fit {} rotated elements of {}", to_string(cos), to_string(sin),
                         l.rotated, l.head_size));
  const bool per_position = ctx.has_input(3);
  if (cos.size() != (per_position ? 2u : 3u) || (!per_position && (cos[0] != l.batch || cos[1] != l.sequence)))
    ctx.fail(fmt::format("caches of shape {} do not fit an input of shape {}", to_string(cos), to_string(x)));
  return l;
}

// Inputs: X, cos_cache, sin_cache, position_ids (batch, sequence).
void infer_rotary_embedding(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1, 2});
  rotary_layout(ctx, ctx.shape(0), ctx.shape(1), ctx.shape(2));
  ctx.set_shape(0, ctx.shape(0));
}

void run_rotary_embedding(KernelContext& ctx) {
  const RotaryLayout l = rotary_layout(ctx, ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape());
  const bool interleaved = ctx.attributes().integer("interleaved", 0) != 0;
  std::vector<std::int64_t> positions;
  if (ctx.has_input(3)) {
    positions = ctx.integers(3);
    const std::int64_t limit = ctx.input(1).shape()[0];
    if (positions.size() != static_cast<std::size_t>(l.batch * l.sequence))
      ctx.fail(fmt::format("expected {} position ids, got {}", l.batch * l.sequence, positions.size()));
    for (std::int64_t p : positions)
      if (p < 0 || p >= limit) ctx.fail(fmt::format("position id {} is outside of [0, {})", p, limit));
  }
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    const T* x = ctx.input(0).data<T>();
    const T* cos = ctx.input(1).data<T>();
    const T* sin = ctx.input(2).data<T>();
    T* out = ctx.output(0).data<T>();
    const std::int64_t half = l.rotated / 2;
    parallel_for(l.batch * l.heads * l.sequence, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row / (l.heads * l.sequence);
        const std::int64_t s = l.heads_first ? row % l.sequence : row / l.heads % l.sequence;
        const std::int64_t at = n * l.sequence + s;
        const std::int64_t cache = (positions.empty() ? at : positions[static_cast<std::size_t>(at)]) * half;
        const T* in = x + row * l.head_size;
        T* y = out + row * l.head_size;
        for (std::int64_t i = 0; i < half; ++i) {
          const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
          const T c = cos[cache + i], d = sin[cache + i], a = in[first], b = in[second];
          y[first] = c * a - d * b;
          y[second] = d * a + c * b;
        }
        std::copy(in + l.rotated, in + l.head_size, y + l.rotated);
      }
    });
  });
}

void adjoint_rotary_embedding(AdjointContext& ctx) {
  // The rotation back; the angles have no derivative here.
  ctx.leave_out(1);
  ctx.leave_out(2);
  if (!ctx.wants(0)) return;
  const Attributes& attributes = ctx.attributes();
  const TensorId positions = ctx.has_input(3) ? ctx.input(3) : kNone;
  ctx.set(0, ctx.add("RotaryEmbedding", {ctx.gradient(0), ctx.input(1), (-input(ctx, 2)).id, positions},
                     {{"interleaved", attributes.integer("interleaved", 0)},
                      {"num_heads", attributes.integer("num_heads", 0)},
                      {"rotary_embedding_dim", attributes.integer("rotary_embedding_dim", 0)}}));
}

}  // namespace

OpDef rotary_embedding() {
  return {.name = "RotaryEmbedding",
          .since_version = 23,
          .inputs = {3, 4},
          .types = {kFloats, kFloats, kFloats, kIndices},
          .infer = infer_rotary_embedding,
          .run = run_rotary_embedding,
          .adjoint = adjoint_rotary_embedding};
}

}  // namespace ulpscope::ops
