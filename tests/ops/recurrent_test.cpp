// Rows of the recurrent layers, against cells written from the equations of the specification.
#include <cmath>

#include "ops/op_rows.h"

namespace ulpscope::test::recurrent_rows {
namespace {

using Matrix = std::vector<std::vector<double>>;
using Cell = std::function<void(const std::vector<double>& x, std::vector<double>& h, std::vector<double>& c)>;

const std::int64_t kSeq = 3, kBatch = 2, kInput = 2, kHidden = 2;
const Tensor x = spread({kSeq, kBatch, kInput}, -1, 1, 1);

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

double at(const Tensor& t, std::int64_t i) { return t.data<float>()[i]; }

/// Row `gate * hidden + i` of W x + R h + both biases, or of one of the two halves.
double gate(const Tensor& w, const std::vector<double>& v, std::int64_t row) {
  double sum = 0;
  for (std::size_t k = 0; k < v.size(); ++k)
    sum += at(w, row * static_cast<std::int64_t>(v.size()) + static_cast<std::int64_t>(k)) * v[k];
  return sum;
}

struct Result {
  Tensor y, h, c;
};

/// Runs `cell` over time for every sequence. `lengths`: steps per sequence.
Result unroll(const Cell& cell, bool reverse, const std::vector<std::int64_t>& lengths) {
  std::vector<double> y(static_cast<std::size_t>(kSeq * kBatch * kHidden)), last_h, last_c;
  for (std::int64_t n = 0; n < kBatch; ++n) {
    std::vector<double> h(kHidden), c(kHidden);
    const std::int64_t length = lengths[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t t = reverse ? length - 1 - i : i;
      cell({at(x, (t * kBatch + n) * kInput), at(x, (t * kBatch + n) * kInput + 1)}, h, c);
      for (std::int64_t k = 0; k < kHidden; ++k)
        y[static_cast<std::size_t>((t * kBatch + n) * kHidden + k)] = h[static_cast<std::size_t>(k)];
    }
    last_h.insert(last_h.end(), h.begin(), h.end());
    last_c.insert(last_c.end(), c.begin(), c.end());
  }
  const auto tensor = [](Shape shape, std::vector<double> v) {
    return generated(shape, [v](std::int64_t i) { return v[static_cast<std::size_t>(i)]; });
  };
  return {tensor({kSeq, 1, kBatch, kHidden}, y), tensor({1, kBatch, kHidden}, last_h),
          tensor({1, kBatch, kHidden}, last_c)};
}

Tensor w_of(std::int64_t gates) { return spread({1, gates * kHidden, kInput}, -1, 1, 2); }
Tensor r_of(std::int64_t gates) { return spread({1, gates * kHidden, kHidden}, -1, 1, 3); }
Tensor b_of(std::int64_t gates) { return spread({1, 2 * gates * kHidden}, -1, 1, 4); }
const Tensor peepholes = spread({1, 3 * kHidden}, -1, 1, 5);

void lstm(const std::vector<double>& v, std::vector<double>& h, std::vector<double>& c) {
  const Tensor w = w_of(4), r = r_of(4), b = b_of(4);
  const auto h0 = h;
  const auto sum = [&](std::int64_t g, std::int64_t i) {
    const std::int64_t row = g * kHidden + i;
    return gate(w, v, row) + gate(r, h0, row) + at(b, row) + at(b, 4 * kHidden + row);
  };
  for (std::int64_t i = 0; i < kHidden; ++i) {
    double &cell = c[static_cast<std::size_t>(i)], in = sigmoid(sum(0, i) + at(peepholes, i) * cell);
    const double forget = sigmoid(sum(2, i) + at(peepholes, 2 * kHidden + i) * cell);
    cell = forget * cell + in * std::tanh(sum(3, i));
    h[static_cast<std::size_t>(i)] = sigmoid(sum(1, i) + at(peepholes, kHidden + i) * cell) * std::tanh(cell);
  }
}

Cell gru(bool linear_before_reset) {
  return [=](const std::vector<double>& v, std::vector<double>& h, std::vector<double>&) {
    const Tensor w = w_of(3), r = r_of(3), b = b_of(3);
    const auto h0 = h;
    std::vector<double> reset(kHidden), scaled(kHidden);
    const auto both = [&](std::int64_t row) {
      return gate(w, v, row) + gate(r, h0, row) + at(b, row) + at(b, 3 * kHidden + row);
    };
    for (std::size_t i = 0; i < reset.size(); ++i) {
      reset[i] = sigmoid(both(kHidden + static_cast<std::int64_t>(i)));
      scaled[i] = reset[i] * h0[i];
    }
    for (std::size_t i = 0; i < reset.size(); ++i) {
      const std::int64_t row = 2 * kHidden + static_cast<std::int64_t>(i);
      const double recurrent = linear_before_reset ? reset[i] * (gate(r, h0, row) + at(b, 3 * kHidden + row))
                                                   : gate(r, scaled, row) + at(b, 3 * kHidden + row);
      const double z = sigmoid(both(static_cast<std::int64_t>(i))),
                   n = std::tanh(gate(w, v, row) + recurrent + at(b, row));
      h[i] = (1 - z) * n + z * h0[i];
    }
  };
}

void rnn(const std::vector<double>& v, std::vector<double>& h, std::vector<double>&) {
  const Tensor w = w_of(1), r = r_of(1), b = b_of(1);
  const auto h0 = h;
  for (std::int64_t i = 0; i < kHidden; ++i) {
    const double sum = gate(w, v, i) + gate(r, h0, i) + at(b, i) + at(b, kHidden + i);
    h[static_cast<std::size_t>(i)] = std::clamp(sum, -0.5, 0.5) * 2 + 0.25;  // clip 0.5, Affine(2, 0.25)
  }
}

const Result forward_lstm = unroll(lstm, false, {3, 3}), reverse_lstm = unroll(lstm, true, {3, 1});
const Result forward_gru = unroll(gru(false), false, {2, 3}), reverse_gru = unroll(gru(true), true, {3, 3});
const Result plain = unroll(rnn, false, {3, 3});

/// Of integers that stand for 1, then 0.2, and for the state itself; all gates are sigmoid(0).
Result dynamic_lstm() {
  const double c1 = std::tanh(1.0) / 2, h1 = std::tanh(c1) / 2;
  const double c2 = c1 / 2 + std::tanh(0.2 + h1) / 2, h2 = std::tanh(c2) / 2;
  const auto at = [](double value) { return static_cast<float>(value); };
  return {f32({2, 1, 1, 1}, {at(h1), at(h2)}), f32({1, 1, 1}, {at(h2)}), f32({1, 1, 1}, {at(c2)})};
}
const Result dynamic = dynamic_lstm();
const Attribute kOne = std::int64_t{1};

const AddRows rows({
    {"DynamicQuantizeLSTM",
     "two steps",
     1,
     {{"hidden_size", kOne}},
     {f32({2, 1, 1}, {255, 51}), i8({1, 1, 4}, {3, 3, 3, 4}), i8({1, 1, 4}, {0, 0, 0, 2}), Tensor(), Tensor(), Tensor(),
      Tensor(), Tensor(), f32({1}, {1 / 255.0F}), i8({1}, {3}), f32({1}, {0.5F}), i8({1}, {0})},
     {dynamic.y, dynamic.h, dynamic.c},
     1e-6,
     "com.microsoft"},
    {"LSTM",
     "peepholes",
     14,
     {{"hidden_size", kHidden}},
     {x, w_of(4), r_of(4), b_of(4), Tensor(), Tensor(), Tensor(), peepholes},
     {forward_lstm.y, forward_lstm.h, forward_lstm.c},
     1e-5},
    {"LSTM",
     "reverse with lengths",
     22,
     {{"direction", std::string("reverse")}},
     {x, w_of(4), r_of(4), b_of(4), i32({2}, {3, 1}), Tensor(), Tensor(), peepholes},
     {reverse_lstm.y, Tensor(), reverse_lstm.c},
     1e-5},
    {"GRU", "lengths", 14, {}, {x, w_of(3), r_of(3), b_of(3), i32({2}, {2, 3})}, {forward_gru.y, forward_gru.h}, 1e-5},
    {"GRU",
     "linear before reset, reverse",
     7,
     {{"direction", std::string("reverse")}, {"linear_before_reset", kOne}},
     {x, w_of(3), r_of(3), b_of(3)},
     {reverse_gru.y, reverse_gru.h},
     1e-5},
    {"RNN",
     "clip and affine activation",
     14,
     {{"clip", 0.5F},
      {"activations", std::vector<std::string>{"Affine"}},
      {"activation_alpha", std::vector<float>{2}},
      {"activation_beta", std::vector<float>{0.25F}}},
     {x, w_of(1), r_of(1), b_of(1)},
     {plain.y, plain.h},
     1e-5},
    {"RNN",
     "batch first, bidirectional, initial state",
     14,
     {{"layout", kOne},
      {"direction", std::string("bidirectional")},
      {"activations", std::vector<std::string>{"Relu", "Relu"}}},
     {f32({1, 2, 1}, {1, 2}), f32({2, 1, 1}, {1, 10}), f32({2, 1, 1}, {0.5F, 1}), Tensor(), Tensor(),
      f32({1, 2, 1}, {2, 3})},
     {f32({1, 2, 2, 1}, {2, 33, 3, 23}), f32({1, 2, 1}, {3, 33})}},
});

}  // namespace
}  // namespace ulpscope::test::recurrent_rows
