// What LSTM, GRU and RNN share: shapes, directions, sequence lengths, activations and the time loop.
#pragma once

#include <string>
#include <vector>

#include "ops/common.h"
#include "ops/contraction/multiply.h"

namespace ulpscope::ops {

/// The sizes of one recurrent layer. X is (seq, batch, input), or (batch, seq, input) when batch_first (layout = 1).
struct RecurrentSizes {
  std::int64_t seq = 0, batch = 0, input = 0, hidden = 0, directions = 1;
  bool batch_first = false;

  Shape sequence_shape() const;  ///< Of Y.
  Shape state_shape() const;     ///< Of Y_h, Y_c and the initial states.
  /// Index of the row (t, n) of X.
  std::int64_t x_row(std::int64_t t, std::int64_t n) const noexcept;
  /// Offset of (t, direction, n, 0) in Y.
  std::int64_t y_at(std::int64_t t, std::int64_t d, std::int64_t n) const noexcept;
  /// Offset of (direction, n, 0) in a state.
  std::int64_t state_at(std::int64_t d, std::int64_t n) const noexcept;
};

/// From X, W, R; checks them, the direction and hidden_size. `gates`: 1 for RNN, 3 for GRU, 4 for LSTM.
RecurrentSizes recurrent_sizes(const Layer& layer, const Shape& x, const Shape& w, const Shape& r, std::int64_t gates);

/// The element type of all outputs, and the shapes of Y and of `states` final states.
void infer_recurrent(InferContext& ctx, std::int64_t gates, int states);

/// One activation function with its parameters.
struct Activation {
  enum class Kind {
    kRelu,
    kTanh,
    kSigmoid,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus
  };
  Kind kind;
  double alpha = 0, beta = 0;

  template <typename T>
  T operator()(T x) const;
};

/// The activations of all directions, one direction after the other; `defaults` are those of one direction.
std::vector<Activation> activations_of(const Layer& layer, const std::vector<std::string>& defaults,
                                       std::int64_t directions);

/// Limits to [-clip, clip]; clip <= 0: no limit.
template <typename T>
T clipped(T value, T clip) {
  return clip > 0 ? std::clamp(value, -clip, clip) : value;
}

/// How many steps of each sequence of the batch count (input 4, sequence_lens). Steps beyond are zeros in Y.
std::vector<std::int64_t> sequence_lengths(const KernelContext& ctx, const RecurrentSizes& s);

/// What a time step of one direction works on.
template <typename T>
struct RecurrentStep {
  std::int64_t direction, batch;  ///< batch: the sequence.
  const T* from_input;            ///< gates * hidden sums of W * x (no bias), in the operator's order of gates.
  T* hidden;                      ///< In: H(t-1) of the sequence. Out: H(t).
};

/// Runs all directions over time. Calls step(RecurrentStep) for each direction, sequence and time step; final and
/// intermediate hidden states go to outputs 0 and 1. `step` runs on several threads, never twice at once for the same
/// sequence, and must not throw.
template <typename T, typename Step>
void run_recurrent(KernelContext& ctx, const RecurrentSizes& s, std::int64_t gates, Step&& step) {
  const std::vector<std::int64_t> lengths = sequence_lengths(ctx, s);
  const T* x = ctx.input(0).data<T>();
  const T* w = ctx.input(1).data<T>();
  const T* initial = ctx.has_input(5) ? ctx.input(5).data<T>() : nullptr;
  T* y = ctx.has_output(0) ? ctx.output(0).data<T>() : nullptr;
  T* y_h = ctx.has_output(1) ? ctx.output(1).data<T>() : nullptr;
  if (y) std::fill(y, y + ctx.output(0).size(), T{});
  const std::string direction = ctx.attributes().text("direction", "forward");
  const std::int64_t width = gates * s.hidden;
  for (std::int64_t d = 0; d < s.directions; ++d) {
    const bool reverse = d == 1 || direction == "reverse";
    const std::vector<T> weights = transposed(w + d * width * s.input, width, s.input);
    std::vector<T> sums(static_cast<std::size_t>(s.seq * s.batch * width));
    multiply_parallel(x, weights.data(), sums.data(), s.seq * s.batch, width, s.input);
    parallel_for(s.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> hidden(static_cast<std::size_t>(s.hidden));
      for (std::int64_t n = begin; n < end; ++n) {
        const T* start = initial ? initial + s.state_at(d, n) : nullptr;
        for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = start ? start[i] : T{};
        const std::int64_t length = lengths[static_cast<std::size_t>(n)];
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t t = reverse ? length - 1 - i : i;
          step(RecurrentStep<T>{d, n, sums.data() + s.x_row(t, n) * width, hidden.data()});
          if (y) std::copy(hidden.begin(), hidden.end(), y + s.y_at(t, d, n));
        }
        if (y_h) std::copy(hidden.begin(), hidden.end(), y_h + s.state_at(d, n));
      }
    });
  }
}

/// sum over k of weights[row * n + k] * vector[k].
template <typename T>
T dot(const T* a, const T* b, std::int64_t n) noexcept {
  T sum{};
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace ulpscope::ops
