// Rows of Attention and RotaryEmbedding.
#include <cmath>

#include "ops/op_rows.h"

namespace ulpscope::test::attention_rows {
namespace {

const Attribute kOne = std::int64_t{1}, kTwo = std::int64_t{2};

/// One head, written from the definition. `bias` is added to the score of (query, key); q is (n, d), k (m, d), v (m,
/// e).
Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v,
                const std::function<double(std::int64_t, std::int64_t)>& bias, double softcap = 0) {
  const std::int64_t n = q.shape()[2], d = q.shape()[3], m = k.shape()[2], e = v.shape()[3], heads = q.shape()[1];
  const std::int64_t shared = heads / k.shape()[1];
  return generated({1, heads, n, e}, [=](std::int64_t i) {
    const std::int64_t row = i / e % n, head = i / (e * n);
    double sum = 0, total = 0;
    for (std::int64_t j = 0; j < m; ++j) {
      double score = 0;
      for (std::int64_t p = 0; p < d; ++p)
        score += double{q.data<float>()[(head * n + row) * d + p]} * k.data<float>()[(head / shared * m + j) * d + p];
      score /= std::sqrt(double(d));
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      const double weight = std::exp(score + bias(row, j));
      sum += weight;
      total += weight * v.data<float>()[(head / shared * m + j) * e + i % e];
    }
    return sum == 0 ? 0 : total / sum;
  });
}

const Tensor q = spread({1, 4, 3, 4}, -2, 2, 1), k = spread({1, 2, 5, 4}, -2, 2, 2), v = spread({1, 2, 5, 3}, -2, 2, 3);
const Tensor mask = spread({3, 5}, -1, 1, 4);
const double kNever = -INFINITY;

const AddRows rows({
    {"Attention",
     "grouped heads with a mask",
     23,
     {},
     {q, k, v, mask},
     {attended(q, k, v, [](std::int64_t i, std::int64_t j) { return mask.data<float>()[i * 5 + j]; })},
     1e-5},
    {"Attention",
     "causal with softcap",
     24,
     {{"is_causal", kOne}, {"softcap", 1.5F}},
     {q, k, v},
     {attended(
         q, k, v, [](std::int64_t i, std::int64_t j) { return j > i ? kNever : 0; }, 1.5)},
     1e-5},
    {"Attention",
     "a window, and a query that sees nothing",
     25,
     {{"left_window_size", kOne}, {"right_window_size", std::int64_t{0}}},
     {q, k, v, b8({3, 5}, {false, true, true, true, true, true, true, true, true, true, true, true, true, true, true})},
     {attended(q, k, v, [](std::int64_t i, std::int64_t j) { return j > i || j < i - 1 || i == 0 ? kNever : 0; })},
     1e-5},
    {"Attention",
     "a cache of one key",
     23,
     {{"q_num_heads", kOne}, {"kv_num_heads", kOne}, {"is_causal", kOne}},
     {f32({1, 1, 1}, {0}), f32({1, 1, 1}, {5}), f32({1, 1, 2}, {1, 2}), Tensor(), f32({1, 1, 1, 1}, {4}),
      f32({1, 1, 1, 2}, {3, 6})},
     {f32({1, 1, 2}, {2, 4}), f32({1, 1, 2, 1}, {4, 5}), f32({1, 1, 2, 2}, {3, 6, 1, 2}), f32({1, 1, 1, 2}, {0, 0})}},
    {"Attention",
     "lengths of an outer cache",
     24,
     {{"qk_matmul_output_mode", std::int64_t{3}}},
     {f32({2, 1, 1, 1}, {0, 0}), f32({2, 1, 2, 1}, {1, 1, 1, 1}), f32({2, 1, 2, 1}, {1, 3, 5, 9}), Tensor(), Tensor(),
      Tensor(), i64({2}, {1, 2})},
     {f32({2, 1, 1, 1}, {1, 7}), Tensor(), Tensor(), f32({2, 1, 1, 2}, {1, 0, 0.5F, 0.5F})}},
    {"RotaryEmbedding",
     "halves by position",
     23,
     {},
     {f32({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), f32({2, 2}, {1, 0, 0, 1}), f32({2, 2}, {0, 1, 1, 0}),
      i64({1, 2}, {1, 0})},
     {f32({1, 1, 2, 4}, {-3, 2, 1, 4, 5, -8, 7, 6})}},
    {"RotaryEmbedding",
     "interleaved pairs, part of a packed head",
     23,
     {{"interleaved", kOne}, {"rotary_embedding_dim", kTwo}, {"num_heads", kTwo}},
     {f32({1, 1, 6}, {1, 2, 3, 4, 5, 6}), f32({1, 1, 1}, {0}), f32({1, 1, 1}, {1})},
     {f32({1, 1, 6}, {-2, 1, 3, -5, 4, 6})}},
});

}  // namespace
}  // namespace ulpscope::test::attention_rows
