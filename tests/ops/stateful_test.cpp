// Rows of LinearAttention and CausalConvWithState, against loops written from the equations of the specification.
#include <cmath>

#include "ops/op_rows.h"

namespace ulpscope::test::stateful_rows {
namespace {

const std::int64_t kBatch = 2, kSteps = 3, kHeads = 2, kShared = 2, kSize = 2, kWidth = 3;
const Attribute kTwo = std::int64_t{2}, kFour = std::int64_t{4};

const Tensor query = spread({kBatch, kSteps, kHeads * kShared * kSize}, -1, 1, 1);
const Tensor key = spread({kBatch, kSteps, kHeads * kSize}, -1, 1, 2);
const Tensor value = spread({kBatch, kSteps, kHeads * kWidth}, -1, 1, 3);
const Tensor past = spread({kBatch, kHeads, kSize, kWidth}, -1, 1, 4);
const Tensor decay = spread({kBatch, kSteps, kHeads}, -1, 0, 5);
const Tensor decay_per_key = spread({kBatch, kSteps, kHeads * kSize}, -1, 0, 6);
const Tensor beta = spread({kBatch, kSteps, kHeads}, 0, 1, 7), one_beta = spread({kBatch, kSteps, 1}, 0, 1, 8);

double at(const Tensor& t, std::int64_t i) { return t.data<float>()[i]; }

/// Element (d, m) of the state of head (b, h) after `steps` steps.
double state(std::int64_t b, std::int64_t h, std::int64_t d, std::int64_t m, std::int64_t steps, const Tensor& before,
             const Tensor& fades, const Tensor& rates) {
  if (steps == 0) return before ? at(before, ((b * kHeads + h) * kSize + d) * kWidth + m) : 0;
  const std::int64_t row = b * kSteps + steps - 1;
  const auto faded = [&](std::int64_t k) {
    const double last = state(b, h, k, m, steps - 1, before, fades, rates);
    if (!fades) return last;
    const std::int64_t each = fades.shape()[2] / kHeads;
    return last * std::exp(at(fades, (row * kHeads + h) * each + (each > 1 ? k : 0)));
  };
  const auto k_of = [&](std::int64_t k) { return at(key, (row * kHeads + h) * kSize + k); };
  double added = at(value, (row * kHeads + h) * kWidth + m);
  if (rates) {
    for (std::int64_t k = 0; k < kSize; ++k) added -= faded(k) * k_of(k);
    added *= rates.shape()[2] == 1 ? at(rates, row) : at(rates, row * kHeads + h);
  }
  return faded(d) + k_of(d) * added;
}

/// The row of an update rule, with both outputs.
Row linear(const char* rule, const Tensor& before, const Tensor& fades, const Tensor& rates, float scale = 0) {
  const double factor = scale == 0 ? 1 / std::sqrt(double(kSize)) : double(scale);
  const Tensor answers = generated({kBatch, kSteps, kHeads * kShared * kWidth}, [=](std::int64_t i) {
    const std::int64_t m = i % kWidth, head = i / kWidth % (kHeads * kShared), row = i / kWidth / (kHeads * kShared);
    double sum = 0;
    for (std::int64_t d = 0; d < kSize; ++d)
      sum += at(query, (row * kHeads * kShared + head) * kSize + d) *
             state(row / kSteps, head / kShared, d, m, row % kSteps + 1, before, fades, rates);
    return factor * sum;
  });
  const Tensor present = generated({kBatch, kHeads, kSize, kWidth}, [=](std::int64_t i) {
    const std::int64_t head = i / kWidth / kSize;
    return state(head / kHeads, head % kHeads, i / kWidth % kSize, i % kWidth, kSteps, before, fades, rates);
  });
  return {"LinearAttention",
          rule,
          27,
          {{"update_rule", std::string(rule)}, {"q_num_heads", kFour}, {"kv_num_heads", kTwo}, {"scale", scale}},
          {query, key, value, before, fades, rates},
          {answers, present},
          1e-5};
}

const Tensor none, x = f32({1, 2, 3}, {1, 2, 3, 4, 5, 6}), w = f32({2, 1, 3}, {1, 10, 100, 2, 0, 1});
const Attribute kSilu = std::string("silu");

const AddRows rows({
    linear("linear", none, none, none, 0.5F),
    linear("gated", past, decay_per_key, none),
    linear("delta", past, none, one_beta),
    linear("gated_delta", past, decay, beta),
    {"CausalConvWithState",
     "nothing before",
     27,
     {},
     {x, w},
     {f32({1, 2, 3}, {100, 210, 321, 4, 5, 14}), f32({1, 2, 2}, {2, 3, 5, 6})}},
    {"CausalConvWithState",
     "a bias, a state, and an activation",
     27,
     {{"activation", kSilu}},
     {f32({1, 2, 1}, {1, 4}), w, f32({2}, {-111, 1}), f32({1, 2, 2}, {7, 0.5F, 1, -3})},
     {f32({1, 2, 1}, {static_cast<float>(1 / (1 + std::exp(-1.0))), static_cast<float>(7 / (1 + std::exp(-7.0)))}),
      f32({1, 2, 2}, {0.5F, 1, -3, 4})}},
});

}  // namespace
}  // namespace ulpscope::test::stateful_rows
