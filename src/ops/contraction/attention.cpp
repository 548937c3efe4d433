// Attention and the rotation of its operands.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/contraction/attention_form.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

using enum AttentionPlaces::Input;
using enum AttentionPlaces::Output;

template <typename Context>
AttentionSizes attention_sizes(const Context& ctx) {
  const Shape &q = shape_of(ctx, kQ), &k = shape_of(ctx, kK), &v = shape_of(ctx, kV);
  const auto misfit = [&] {
    ctx.fail("Q {}, K {} and V {} do not fit together", to_string(q), to_string(k), to_string(v));
  };
  if (q.size() != k.size() || q.size() != v.size() || (q.size() != 3 && q.size() != 4)) misfit();
  AttentionSizes s;
  s.packed = q.size() == 3;
  s.batch = q[0];
  s.q_heads = s.packed ? ctx.attributes().integer("q_num_heads", 0) : q[1];
  s.kv_heads = s.packed ? ctx.attributes().integer("kv_num_heads", 0) : k[1];
  if (s.q_heads < 1 || s.kv_heads < 1 || s.q_heads % s.kv_heads != 0)
    ctx.fail("{} query heads cannot share {} key heads (inputs of rank 3 need q_num_heads and kv_num_heads)", s.q_heads,
             s.kv_heads);
  const std::size_t sequence = s.packed ? 1 : 2;
  s.queries = q[sequence];
  s.new_keys = k[sequence];
  if (s.packed && (q[2] % s.q_heads != 0 || k[2] % s.kv_heads != 0 || v[2] % s.kv_heads != 0)) misfit();
  s.size = s.packed ? q[2] / s.q_heads : q[3];
  s.v_size = s.packed ? v[2] / s.kv_heads : v[3];
  const std::int64_t k_size = s.packed ? k[2] / s.kv_heads : k[3];
  if (k[0] != s.batch || v[0] != s.batch || v[sequence] != s.new_keys || k_size != s.size ||
      (!s.packed && v[1] != s.kv_heads))
    misfit();
  if (ctx.has_input(kPastKey) != ctx.has_input(kPastValue)) ctx.fail("past_key and past_value come together");
  if (ctx.has_input(kPastKey)) {
    const Shape &past_k = shape_of(ctx, kPastKey), &past_v = shape_of(ctx, kPastValue);
    if (past_k.size() != 4 || past_v.size() != 4 || past_k != Shape{s.batch, s.kv_heads, past_k[2], s.size} ||
        past_v != Shape{s.batch, s.kv_heads, past_k[2], s.v_size})
      ctx.fail("past_key {} and past_value {} do not fit K and V", to_string(past_k), to_string(past_v));
    s.past = past_k[2];
  }
  return s;
}

void infer_attention(InferContext& ctx) {
  ctx.set_type(kPresentKey, ctx.type(kK));
  ctx.set_type(kPresentValue, ctx.type(kV));
  ctx.set_type(kScores, ctx.type(kQ));
  require_type_of_first(ctx, {kK, kV, kPastKey, kPastValue});
  if (ctx.has_input(kMask) && ctx.type(kMask) != DataType::kBool) require_type_of_first(ctx, {kMask});
  const AttentionSizes s = attention_sizes(ctx);
  const Shape scores{s.batch, s.q_heads, s.queries, s.keys()};
  if (ctx.has_input(kMask)) {
    Shape mask = ctx.shape(kMask);
    if (!mask.empty() && mask.back() > 1) mask.back() = std::max(mask.back(), s.keys());  // a shorter one is padded
    if (broadcast(mask, scores) != scores)
      ctx.fail("a mask of shape {} does not fit scores of shape {}", to_string(ctx.shape(kMask)), to_string(scores));
  }
  if (s.packed)
    ctx.set_shape(kY, {s.batch, s.queries, s.q_heads * s.v_size});
  else
    ctx.set_shape(kY, {s.batch, s.q_heads, s.queries, s.v_size});
  ctx.set_shape(kPresentKey, {s.batch, s.kv_heads, s.keys(), s.size});
  ctx.set_shape(kPresentValue, {s.batch, s.kv_heads, s.keys(), s.v_size});
  ctx.set_shape(kScores, scores);
}

/// (batch, kv_heads, keys, width): the past, followed by the new rows.
template <typename T>
void append_cache(const AttentionSizes& s, const T* past, const T* added, std::int64_t width, T* out) {
  parallel_each(s.batch * s.kv_heads, 1, [&](std::int64_t head) {
    T* target = out + head * s.keys() * width;
    if (past) target = std::copy(past + head * s.past * width, past + (head + 1) * s.past * width, target);
    for (std::int64_t i = 0; i < s.new_keys; ++i) {
      const T* row = added + s.row(head / s.kv_heads, head % s.kv_heads, i, s.kv_heads, s.new_keys, width);
      target = std::copy(row, row + width, target);
    }
  });
}

template <typename T>
void softmax_row_in_place(T* row, std::int64_t count) {
  T largest = -std::numeric_limits<T>::infinity(), sum{};
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, row[i]);
  for (std::int64_t i = 0; i < count; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (std::int64_t i = 0; i < count; ++i) row[i] /= sum;
}

/// The scores of one query, and what of its row is wanted.
template <typename T>
void attend_row(const AttentionCall<T>& call, std::int64_t b, std::int64_t h, std::int64_t i, std::vector<T>& scores,
                std::vector<T>& added, std::vector<T>& query, std::vector<T>& sum) {
  const AttentionSizes& s = call.sizes;
  const std::int64_t keys = s.keys(), kv = h / s.heads_of_one();
  const T* row = call.q.at(b, h) + i * call.q.row;
  for (std::int64_t d = 0; d < s.size; ++d) query[static_cast<std::size_t>(d)] = row[d] * call.root;
  for (std::int64_t k = 0; k < keys; ++k) {
    const T* key = call.keys.at(b, kv) + k * call.keys.row;
    T dot{};
    for (std::int64_t d = 0; d < s.size; ++d) dot += query[static_cast<std::size_t>(d)] * (key[d] * call.root);
    scores[static_cast<std::size_t>(k)] = dot;
  }
  const auto expose = [&](std::int64_t stage) {
    if (call.exposed && call.exposed_stage == stage)
      std::copy(scores.begin(), scores.end(), call.exposed + ((b * s.q_heads + h) * s.queries + i) * keys);
  };
  expose(0);
  if (call.softcap > 0)
    for (T& value : scores) value = call.softcap * std::tanh(value / call.softcap);
  expose(1);
  const bool any = call.bias.fill(b, h, i, added.data());
  for (std::size_t k = 0; k < scores.size(); ++k) scores[k] += added[k];
  expose(2);
  if (any)
    softmax_row_in_place(scores.data(), keys);
  else
    std::ranges::fill(scores, T{});
  expose(3);
  if (!call.y.data) return;
  std::ranges::fill(sum, T{});
  for (std::int64_t k = 0; k < keys; ++k) {
    const T weight = scores[static_cast<std::size_t>(k)];
    const T* value = call.values.at(b, kv) + k * call.values.row;
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
  }
  std::ranges::copy(sum, call.y.at(b, h) + i * call.y.row);
}

template <typename T>
void attend(KernelContext& ctx) {
  const AttentionCall<T> call(ctx);
  const AttentionSizes& s = call.sizes;
  parallel_for(s.batch * s.q_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> scores(static_cast<std::size_t>(s.keys())), added(scores), query(static_cast<std::size_t>(s.size)),
        sum(static_cast<std::size_t>(s.v_size));
    for (std::int64_t head = begin; head < end; ++head)
      for (std::int64_t i = 0; i < s.queries; ++i)
        attend_row(call, head / s.q_heads, head % s.q_heads, i, scores, added, query, sum);
  });
}

void run_attention(KernelContext& ctx) {
  with_type(FloatTypes{}, ctx, ctx.input(kQ).type(), [&](auto tag) { attend<decltype(tag)>(ctx); });
}

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
      ctx.fail("'num_heads' {} does not fit an input of shape {}", heads, to_string(x));
    l = {x[0], heads, x[1], x[2] / heads, 0, false};
  } else {
    ctx.fail("expected an input of rank 3 or 4, got shape {}", to_string(x));
  }
  l.rotated = attributes.integer("rotary_embedding_dim", 0);
  if (l.rotated == 0) l.rotated = l.head_size;
  if (l.rotated % 2 != 0 || l.rotated > l.head_size || cos.empty() || cos.back() != l.rotated / 2 || cos != sin)
    ctx.fail("caches {} and {} do not fit {} rotated elements of {}", to_string(cos), to_string(sin), l.rotated,
             l.head_size);
  const bool per_position = ctx.has_input(3);
  if (cos.size() != (per_position ? 2u : 3u) || (!per_position && (cos[0] != l.batch || cos[1] != l.sequence)))
    ctx.fail("caches of shape {} do not fit an input of shape {}", to_string(cos), to_string(x));
  return l;
}

// Inputs: X, cos_cache, sin_cache, position_ids (batch, sequence).
void infer_rotary_embedding(InferContext& ctx) {
  require_type_of_first(ctx, {1, 2});
  rotary_layout(ctx, ctx.shape(0), ctx.shape(1), ctx.shape(2));
  ctx.set_shape(0, ctx.shape(0));
}

void run_rotary_embedding(KernelContext& ctx) {
  const RotaryLayout l = rotary_layout(ctx, ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape());
  const bool interleaved = ctx.attributes().integer("interleaved", 0) != 0;
  std::vector<std::int64_t> positions;
  if (ctx.has_input(3)) {
    positions = ctx.input_ints(3);
    const std::int64_t limit = ctx.input(1).shape()[0];
    if (positions.size() != static_cast<std::size_t>(l.batch * l.sequence))
      ctx.fail("expected {} position ids, got {}", l.batch * l.sequence, positions.size());
    for (std::int64_t p : positions)
      if (p < 0 || p >= limit) ctx.fail("position id {} is outside of [0, {})", p, limit);
  }
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* x = ctx.input(0).data<T>();
    const T* cos = ctx.input(1).data<T>();
    const T* sin = ctx.input(2).data<T>();
    T* out = ctx.output(0).data<T>();
    const std::int64_t half = l.rotated / 2;
    parallel_each(l.batch * l.heads * l.sequence, 64, [&](std::int64_t row) {
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

template <typename T>
AttentionBias<T>::AttentionBias(const KernelContext& ctx, const AttentionSizes& s) : sizes_(s) {
  const Attributes& attributes = ctx.attributes();
  causal_ = attributes.integer("is_causal", 0) != 0;
  left_ = attributes.integer("left_window_size", -1);
  right_ = attributes.integer("right_window_size", -1);
  if (ctx.has_input(kValidLengths)) {
    lengths_ = ctx.input_ints(kValidLengths);
    if (lengths_.size() != static_cast<std::size_t>(s.batch))
      ctx.fail("expected {} entries in nonpad_kv_seqlen, got {}", s.batch, lengths_.size());
  }
  if (!ctx.has_input(kMask)) return;
  const Tensor& mask = ctx.input(kMask);
  if (mask.type() == DataType::kBool)
    flags_ = mask.data<bool>();
  else
    values_ = mask.data<T>();
  columns_ = mask.rank() == 0 ? 1 : mask.shape().back();
  strides_ = broadcast_strides(mask.shape(), Shape(4, 2));  // any target of rank 4: dimensions of size 1 do not move
}

template <typename T>
bool AttentionBias<T>::is_nothing() const {
  return !causal_ && left_ < 0 && right_ < 0 && lengths_.empty() && !flags_ && !values_;
}

template <typename T>
bool AttentionBias<T>::fill(std::int64_t b, std::int64_t h, std::int64_t query, T* bias) const {
  constexpr T kNever = -std::numeric_limits<T>::infinity();
  const std::int64_t keys = sizes_.keys();
  const std::int64_t length = lengths_.empty() ? keys : lengths_[static_cast<std::size_t>(b)];
  const std::int64_t position = query + (sizes_.past > 0    ? sizes_.past
                                         : lengths_.empty() ? 0
                                                            : length - sizes_.queries);
  // Keys [first, last) may be seen.
  std::int64_t first = 0, last = std::min(keys, length);
  if (causal_) last = std::min(last, position + 1);
  if (left_ >= 0) first = std::clamp<std::int64_t>(position - left_, 0, keys);
  if (right_ >= 0 && right_ < last - position) last = position + right_ + 1;
  if (columns_ > 1) last = std::min(last, columns_);
  last = std::max(last, first);
  std::fill(bias, bias + first, kNever);
  std::fill(bias + last, bias + keys, kNever);
  if (!flags_ && !values_) {
    std::fill(bias + first, bias + last, T{});
    return last > first;
  }
  const std::int64_t at = b * strides_[0] + h * strides_[1] + query * strides_[2], step = strides_[3];
  bool any = false;
  for (std::int64_t key = first; key < last; ++key) {
    bias[key] = values_ ? values_[at + key * step] : flags_[at + key * step] ? T{} : kNever;
    any |= bias[key] != kNever;
  }
  return any;
}

template <typename T>
AttentionCall<T>::AttentionCall(KernelContext& ctx) : sizes(attention_sizes(ctx)), bias(ctx, sizes) {
  const AttentionSizes& s = sizes;
  const Attributes& attributes = ctx.attributes();
  root = std::sqrt(attributes.has("scale") ? static_cast<T>(attributes.real("scale", 1))
                                           : T{1} / std::sqrt(static_cast<T>(s.size)));
  softcap = static_cast<T>(attributes.real("softcap", 0));
  exposed_stage = attributes.integer("qk_matmul_output_mode", 0);
  const auto in_place = [&](auto* data, std::int64_t heads, std::int64_t count, std::int64_t width, bool packed) {
    return AttentionRows<std::remove_pointer_t<decltype(data)>>{
        data, heads * count * width, (packed ? 1 : count) * width, packed ? heads * width : width};
  };
  const auto cached = [&](int past, int added, int present, std::int64_t width) {
    if (!ctx.has_input(past) && !ctx.has_output(present))
      return in_place(ctx.input(added).data<T>(), s.kv_heads, s.new_keys, width, s.packed);
    Tensor& all = held_.emplace_back(ctx.has_output(present)
                                         ? ctx.output(present)
                                         : Tensor(ctx.input(added).type(), {s.batch, s.kv_heads, s.keys(), width}));
    append_cache<T>(s, ctx.has_input(past) ? ctx.input(past).data<T>() : nullptr, ctx.input(added).data<T>(), width,
                    all.data<T>());
    return in_place(static_cast<const T*>(all.data<T>()), s.kv_heads, s.keys(), width, false);
  };
  q = in_place(ctx.input(kQ).data<T>(), s.q_heads, s.queries, s.size, s.packed);
  keys = cached(kPastKey, kK, kPresentKey, s.size);
  values = cached(kPastValue, kV, kPresentValue, s.v_size);
  if (ctx.has_output(kY)) y = in_place(ctx.output(kY).data<T>(), s.q_heads, s.queries, s.v_size, s.packed);
  if (ctx.has_output(kScores)) exposed = ctx.output(kScores).data<T>();
}

template class AttentionBias<float>;
template class AttentionBias<double>;
template struct AttentionCall<float>;
template struct AttentionCall<double>;

bool is_attention(const Layer& layer) { return layer.op->run == run_attention; }

OpTable attention() {
  return {
      // Attention, ai.onnx 23, 24, 25: softmax_row_in_place(softcap(Q K' * scale) + bias) V, with grouped heads, causal
      // and sliding-window masks and a key/value cache.
      make_op({.name = "Attention",
               .since_version = 23,
               .inputs = {3, 7},
               .outputs = {1, 4},
               .types = {kFloats, kFloats, kFloats, kFloats | kBooleans, kFloats, kFloats, kIndices}},
              infer_attention, run_attention),
      // RotaryEmbedding, ai.onnx 23: rotates pairs of elements by angles that depend on the position in the sequence
      // (Su et al., "RoFormer", 2021).
      make_op({.name = "RotaryEmbedding",
               .since_version = 23,
               .inputs = {3, 4},
               .types = {kFloats, kFloats, kFloats, kIndices}},
              infer_rotary_embedding, run_rotary_embedding, adjoint_rotary_embedding),
  };
}

}  // namespace ulpscope::ops
