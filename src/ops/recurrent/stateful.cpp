// Layers that hand a state from one call to the next: attention without a softmax, and causal convolutions.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

enum LinearAttentionInput { kQuery, kKey, kValue, kPast, kDecay, kBeta };

/// Query is (batch, steps, q_heads * k_size), key and value (batch, steps, kv_heads * k_size or v_size).
struct LinearAttentionForm {
  std::int64_t batch = 0, steps = 0, q_heads = 0, kv_heads = 0, k_size = 0, v_size = 0;
  bool decays = false, corrects = false;  ///< What the update rule has.

  Shape state() const { return {batch, kv_heads, k_size, v_size}; }
  Shape rows(std::int64_t width) const { return {batch, steps, width}; }
};

template <typename Context>
LinearAttentionForm linear_attention_form(const Context& ctx) {
  LinearAttentionForm f;
  const std::string rule = ctx.attributes().text("update_rule", "gated_delta");
  f.decays = rule == "gated" || rule == "gated_delta";
  f.corrects = rule == "delta" || rule == "gated_delta";
  if (!f.decays && !f.corrects && rule != "linear")
    ctx.fail("expected linear, gated, delta or gated_delta as 'update_rule', got '{}'", rule);
  if (ctx.has_input(kDecay) != f.decays || ctx.has_input(kBeta) != f.corrects)
    ctx.fail("the update rule '{}' takes {} decay and {} beta", rule, f.decays ? "a" : "no", f.corrects ? "a" : "no");
  const Shape &q = shape_of(ctx, kQuery), &k = shape_of(ctx, kKey), &v = shape_of(ctx, kValue);
  f.q_heads = ctx.attributes().integer("q_num_heads", 0);
  f.kv_heads = ctx.attributes().integer("kv_num_heads", 0);
  if (f.q_heads < 1 || f.kv_heads < 1 || f.q_heads % f.kv_heads != 0)
    ctx.fail("{} query heads cannot share {} key heads", f.q_heads, f.kv_heads);
  if (q.size() == 3 && v.size() == 3) {
    f.batch = q[0];
    f.steps = q[1];
    f.k_size = q[2] / f.q_heads;
    f.v_size = v[2] / f.kv_heads;
  }
  if (f.k_size < 1 || f.v_size < 1 || q != f.rows(f.q_heads * f.k_size) || k != f.rows(f.kv_heads * f.k_size) ||
      v != f.rows(f.kv_heads * f.v_size))
    ctx.fail("query {}, key {} and value {} do not fit together", to_string(q), to_string(k), to_string(v));
  if (ctx.has_input(kPast) && shape_of(ctx, kPast) != f.state())
    ctx.fail("expected a past state of shape {}, got {}", to_string(f.state()), to_string(shape_of(ctx, kPast)));
  const auto expect_widths = [&](int input, std::int64_t one, std::int64_t other) {
    if (!ctx.has_input(input)) return;
    const Shape& shape = shape_of(ctx, input);
    if (shape != f.rows(one) && shape != f.rows(other))
      ctx.fail("expected {} or {} as the shape of input {}, got {}", to_string(f.rows(one)), to_string(f.rows(other)),
               input, to_string(shape));
  };
  expect_widths(kDecay, f.kv_heads, f.kv_heads * f.k_size);
  expect_widths(kBeta, f.kv_heads, 1);
  return f;
}

void infer_linear_attention(InferContext& ctx) {
  ctx.set_type(1, ctx.type(ctx.has_input(kPast) ? kPast : kQuery));
  require_type_of_first(ctx, {kKey, kValue, kDecay, kBeta});
  const auto is_double = [&](int i) { return ctx.type(i) == DataType::kFloat64; };
  if (ctx.has_input(kPast) && is_double(kPast) != is_double(kQuery)) require_type_of_first(ctx, {kPast});
  const LinearAttentionForm f = linear_attention_form(ctx);
  ctx.set_shape(0, f.rows(f.q_heads * f.v_size));
  ctx.set_shape(1, f.state());
}

/// What one layer reads and writes, and the steps of one head of keys.
template <typename T>
struct LinearAttention {
  explicit LinearAttention(KernelContext& ctx) : f(linear_attention_form(ctx)) {
    const auto read = [&](int i) { return ctx.has_input(i) ? ctx.input(i).data<T>() : nullptr; };
    query = read(kQuery), key = read(kKey), value = read(kValue), past = read(kPast);
    decay = read(kDecay), beta = read(kBeta);
    decays_per_key = decay && ctx.input(kDecay).shape()[2] != f.kv_heads;
    betas = beta ? ctx.input(kBeta).shape()[2] : 0;
    scale = static_cast<T>(ctx.attributes().real("scale", 0));
    if (scale == T{0}) scale = T{1} / std::sqrt(static_cast<T>(f.k_size));
    output = ctx.has_output(0) ? ctx.output(0).data<T>() : nullptr;
    present = ctx.has_output(1) ? ctx.output(1).data<T>() : nullptr;
  }

  void run(std::int64_t head) const {
    const std::int64_t b = head / f.kv_heads, h = head % f.kv_heads, size = f.k_size * f.v_size;
    std::vector<T> kept(static_cast<std::size_t>(size)), sums(static_cast<std::size_t>(f.v_size));
    T *state = kept.data(), *added = sums.data();
    if (past) std::copy_n(past + head * size, size, state);
    for (std::int64_t t = b * f.steps; t < (b + 1) * f.steps; ++t) {
      if (decay) fade(t, h, state);
      const T* k = key + (t * f.kv_heads + h) * f.k_size;
      std::copy_n(value + (t * f.kv_heads + h) * f.v_size, f.v_size, added);
      if (beta) {
        for (std::int64_t d = 0; d < f.k_size; ++d)
          for (std::int64_t i = 0; i < f.v_size; ++i) added[i] -= state[d * f.v_size + i] * k[d];
        for (T& each : sums) each *= beta[t * betas + (betas == 1 ? 0 : h)];
      }
      for (std::int64_t d = 0; d < f.k_size; ++d)
        for (std::int64_t i = 0; i < f.v_size; ++i) state[d * f.v_size + i] += k[d] * added[i];
      if (output) answer(t, h, state);
    }
    if (present) std::copy_n(state, size, present + head * size);
  }

  void fade(std::int64_t t, std::int64_t h, T* state) const {
    for (std::int64_t d = 0; d < f.k_size; ++d) {
      const std::int64_t at = t * f.kv_heads + h;
      const T factor = std::exp(decays_per_key ? decay[at * f.k_size + d] : decay[at]);
      for (std::int64_t i = d * f.v_size; i < (d + 1) * f.v_size; ++i) state[i] *= factor;
    }
  }

  void answer(std::int64_t t, std::int64_t h, const T* state) const {
    const std::int64_t shared = f.q_heads / f.kv_heads;
    for (std::int64_t head = h * shared; head < (h + 1) * shared; ++head) {
      const T* q = query + (t * f.q_heads + head) * f.k_size;
      T* out = output + (t * f.q_heads + head) * f.v_size;
      std::fill_n(out, f.v_size, T{});
      for (std::int64_t d = 0; d < f.k_size; ++d)
        for (std::int64_t i = 0; i < f.v_size; ++i) out[i] += q[d] * state[d * f.v_size + i];
      for (std::int64_t i = 0; i < f.v_size; ++i) out[i] *= scale;
    }
  }

  LinearAttentionForm f;
  const T *query, *key, *value, *past, *decay, *beta;
  T scale, *output, *present;
  std::int64_t betas;
  bool decays_per_key;
};

void run_linear_attention(KernelContext& ctx) {
  with_type(FloatTypes{}, ctx, ctx.input(kQuery).type(), [&]<typename T>(T) {
    const LinearAttention<T> call(ctx);
    parallel_each(call.f.batch * call.f.kv_heads, 1, [&](std::int64_t head) { call.run(head); });
  });
}

// Inputs: X (batch, channels, length), W (channels, 1, kernel), B, the last kernel - 1 elements of the calls before.
Shape causal_state_shape(const auto& ctx) {
  const Shape &x = shape_of(ctx, 0), &w = shape_of(ctx, 1);
  if (x.size() != 3 || w.size() != 3 || w[0] != x[1] || w[1] != 1 || w[2] < 1)
    ctx.fail("weights of shape {} do not fit an input of shape {}", to_string(w), to_string(x));
  if (ctx.has_input(2) && shape_of(ctx, 2) != Shape{x[1]})
    ctx.fail("expected a bias of shape {}, got {}", to_string(Shape{x[1]}), to_string(shape_of(ctx, 2)));
  const Shape state{x[0], x[1], w[2] - 1};
  if (ctx.has_input(3) && shape_of(ctx, 3) != state)
    ctx.fail("expected a past state of shape {}, got {}", to_string(state), to_string(shape_of(ctx, 3)));
  return state;
}

void infer_causal_conv(InferContext& ctx) {
  for (int i : {0, 1}) ctx.set_type(i, ctx.type(0));
  require_type_of_first(ctx, {1, 2, 3});
  if (const std::string last = ctx.attributes().text("activation", "none");
      last != "none" && last != "silu" && last != "swish")
    ctx.fail("expected none, silu or swish as 'activation', got '{}'", last);
  ctx.set_shape(1, causal_state_shape(ctx));
  ctx.set_shape(0, ctx.shape(0));
}

void run_causal_conv(KernelContext& ctx) {
  const Shape& x = ctx.input(0).shape();
  const std::int64_t channels = x[1], length = x[2], before = causal_state_shape(ctx)[2];
  const bool silu = ctx.attributes().text("activation", "none") != "none";
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const auto read = [&](int i) { return ctx.has_input(i) ? ctx.input(i).data<T>() : nullptr; };
    const auto write = [&](int i) { return ctx.has_output(i) ? ctx.output(i).data<T>() : nullptr; };
    const T *in = read(0), *weights = read(1), *bias = read(2), *past = read(3);
    T *out = write(0), *present = write(1);
    parallel_each(x[0] * channels, 1, [&](std::int64_t row) {
      std::vector<T> padded(static_cast<std::size_t>(before + length));
      if (past) std::copy_n(past + row * before, before, padded.data());
      std::copy_n(in + row * length, length, padded.data() + before);
      if (present) std::copy_n(padded.data() + length, before, present + row * before);
      for (std::int64_t i = 0; out && i < length; ++i) {
        T sum{};
        for (std::int64_t k = 0; k <= before; ++k)
          sum += weights[row % channels * (before + 1) + k] * padded[static_cast<std::size_t>(i + k)];
        if (bias) sum += bias[row % channels];
        out[row * length + i] = silu ? sum / (1 + std::exp(-sum)) : sum;
      }
    });
  });
}

}  // namespace

OpTable stateful() {
  return {
      // LinearAttention, ai.onnx 27: a state of keys by values per head, which each step fades (decay), adds to (less
      // what it answers already, times beta), and asks.
      make_op({.name = "LinearAttention", .since_version = 27, .inputs = {3, 6}, .outputs = {1, 2}, .types = {kFloats}},
              infer_linear_attention, run_linear_attention),
      // CausalConvWithState, ai.onnx 27: a depthwise convolution of each element with those before it.
      make_op({.name = "CausalConvWithState",
               .since_version = 27,
               .inputs = {2, 4},
               .outputs = {1, 2},
               .types = {kFloats},
               .weights = 0b110},
              infer_causal_conv, run_causal_conv),
  };
}

}  // namespace ulpscope::ops
