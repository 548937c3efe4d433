// LSTM, GRU and RNN.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/text.h"
#include "ops/contraction/matrix_product.h"
#include "ops/fail.h"
#include "ops/movement.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"
#include "ops/recurrent/form.h"

namespace ulpscope::ops {
namespace {

/// One activation function, and the values of its parameters.
struct Activation {
  std::string_view name;  ///< In lower case: exporters differ in the spelling.
  int parameters;         ///< How many values it takes from activation_alpha and activation_beta.
  double alpha, beta;     ///< In the table: the defaults of the corresponding ONNX operators.
  float (*in_float)(float x, float alpha, float beta);
  double (*in_double)(double x, double alpha, double beta);

  float operator()(float x) const { return in_float(x, static_cast<float>(alpha), static_cast<float>(beta)); }
  double operator()(double x) const { return in_double(x, alpha, beta); }
};

template <typename Function>
constexpr Activation activation_row(std::string_view name, int parameters, double alpha, double beta,
                                    Function function) {
  return {name, parameters, alpha, beta, function, function};
}

constexpr Activation kKnownActivations[] = {
    activation_row("relu", 0, 0, 0, []<typename T>(T x, T, T) { return std::max(T{}, x); }),
    activation_row("tanh", 0, 0, 0, []<typename T>(T x, T, T) { return std::tanh(x); }),
    activation_row("sigmoid", 0, 0, 0, []<typename T>(T x, T, T) { return T{1} / (T{1} + std::exp(-x)); }),
    activation_row("affine", 2, 1, 0, []<typename T>(T x, T a, T b) { return a * x + b; }),
    activation_row("leakyrelu", 1, 0.01f, 0, []<typename T>(T x, T a, T) { return x >= 0 ? x : a * x; }),
    activation_row("thresholdedrelu", 1, 1, 0, []<typename T>(T x, T a, T) { return x >= a ? x : T{}; }),
    activation_row("scaledtanh", 2, 1, 1, []<typename T>(T x, T a, T b) { return a * std::tanh(b * x); }),
    activation_row("hardsigmoid", 2, 0.2f, 0.5f,
                   []<typename T>(T x, T a, T b) { return std::clamp(a * x + b, T{}, T{1}); }),
    activation_row("elu", 1, 1, 0, []<typename T>(T x, T a, T) { return x >= 0 ? x : a * std::expm1(x); }),
    activation_row("softsign", 0, 0, 0, []<typename T>(T x, T, T) { return x / (T{1} + std::abs(x)); }),
    activation_row(
        "softplus", 0, 0, 0,
        []<typename T>(T x, T, T) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }),
};

/// Limits to [-clip, clip]; clip <= 0: no limit.
template <typename T>
T clipped(T value, T clip) {
  return clip > 0 ? std::clamp(value, -clip, clip) : value;
}

template <typename Context>
RecurrentSizes recurrent_sizes(const Context& ctx, std::int64_t gates) {
  return ops::recurrent_sizes(ctx.layer(), shape_of(ctx, 0), shape_of(ctx, 1), shape_of(ctx, 2), gates);
}

/// The shapes of Y and of `states` final states.
void infer_shapes(InferContext& ctx, const RecurrentSizes& s, std::int64_t gates, int states) {
  if (ctx.has_input(3) && ctx.shape(3) != Shape{s.directions, 2 * gates * s.hidden})
    ctx.fail("expected B of shape {}, got {}", to_string({s.directions, 2 * gates * s.hidden}),
             to_string(ctx.shape(3)));
  for (int i = 5; i < 5 + states; ++i)
    if (ctx.has_input(i) && ctx.shape(i) != s.state_shape())
      ctx.fail("expected an initial state of shape {}, got {}", to_string(s.state_shape()), to_string(ctx.shape(i)));
  ctx.set_shape(0, s.sequence_shape());
  for (int i = 1; i <= states; ++i) ctx.set_shape(i, s.state_shape());
}

/// The element type of all outputs, and their shapes.
template <std::int64_t gates, int states>
void infer_recurrent(InferContext& ctx) {
  for (int i = 0; i <= states; ++i) ctx.set_type(i, ctx.type(0));
  require_type_of_first(ctx, {1, 2, 3, 5, 6, 7});
  infer_shapes(ctx, recurrent_sizes(ctx, gates), gates, states);
}

/// The activations of all directions, one direction after the other; `defaults` are those of one direction.
std::vector<Activation> activations_of(const Layer& layer, const std::vector<std::string>& defaults,
                                       std::int64_t directions) {
  std::vector<std::string> names = layer.attributes.texts("activations");
  if (names.empty())
    for (std::int64_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() == defaults.size() && directions == 2) names.insert(names.end(), names.begin(), names.end());
  if (names.size() != defaults.size() * static_cast<std::size_t>(directions))
    fail(layer, "expected {} activations, got {}", defaults.size() * static_cast<std::size_t>(directions),
         names.size());
  const auto alphas = layer.attributes.reals("activation_alpha"), betas = layer.attributes.reals("activation_beta");
  // Values are consumed in the order of the functions that take any.
  std::size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (const std::string& name : names) {
    const auto* known = std::ranges::find(kKnownActivations, lower_case(name), &Activation::name);
    if (known == std::end(kKnownActivations)) fail(layer, "unknown activation '{}'", name);
    Activation& activation = result.emplace_back(*known);
    if (known->parameters >= 1 && next_alpha < alphas.size()) activation.alpha = alphas[next_alpha++];
    if (known->parameters >= 2 && next_beta < betas.size()) activation.beta = betas[next_beta++];
  }
  return result;
}

/// How many steps of each sequence of the batch count (input 4, sequence_lens). Steps beyond are zeros in Y.
std::vector<std::int64_t> sequence_lengths(const KernelContext& ctx, const RecurrentSizes& s) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(s.batch), s.seq);
  if (!ctx.has_input(4)) return lengths;
  lengths = ctx.input_ints(4);
  if (static_cast<std::int64_t>(lengths.size()) != s.batch)
    ctx.fail("expected {} sequence lengths, got {}", s.batch, lengths.size());
  for (std::int64_t length : lengths)
    if (length < 0 || length > s.seq) ctx.fail("sequence length {} is outside of [0, {}]", length, s.seq);
  return lengths;
}

/// What a time step of one direction works on: a sequence of the batch, and the operands of the direction. Everything
/// that counts gates has them in the operator's order.
template <typename T>
struct RecurrentStep {
  std::int64_t direction, sequence;
  const T* from_input;  ///< gates * hidden sums of W * x (no bias).
  const T* bias;        ///< Of W, then of R: gates * hidden each. Null: none.
  const Activation* activation;
  const T* hidden;  ///< H(t-1).
  T* next;          ///< H(t), to be written.
};

/// W * x of all time steps and sequences, as rows of X, for one direction.
template <typename T>
std::vector<T> sums_of_inputs(const KernelContext& ctx, const RecurrentSizes& s, std::int64_t width, std::int64_t d) {
  const std::vector<T> weights = transposed(ctx.input(1).data<T>() + d * width * s.input, width, s.input);
  std::vector<T> sums(static_cast<std::size_t>(s.seq * s.batch * width));
  multiply_parallel(ctx.input(0).data<T>(), weights.data(), sums.data(), s.seq * s.batch, width, s.input);
  return sums;
}

/// Runs all directions over time. Calls step(RecurrentStep) for each direction, sequence and time step; final and
/// intermediate hidden states go to outputs 0 and 1. `step` runs on several threads, never twice at once for the same
/// sequence, and must not throw. `inputs`: what sums_of_inputs() gives for a direction.
template <typename T, typename Inputs, typename Step>
void run_recurrent(KernelContext& ctx, const RecurrentSizes& s, std::int64_t gates,
                   const std::vector<Activation>& activations, const Inputs& inputs, Step&& step) {
  const std::vector<std::int64_t> lengths = sequence_lengths(ctx, s);
  const T* initial = ctx.has_input(5) ? ctx.input(5).data<T>() : nullptr;
  T* y = ctx.has_output(0) ? ctx.output(0).data<T>() : nullptr;
  T* y_h = ctx.has_output(1) ? ctx.output(1).data<T>() : nullptr;
  if (y) std::fill(y, y + ctx.output(0).size(), T{});
  const std::string direction = ctx.attributes().text("direction", "forward");
  const std::int64_t width = gates * s.hidden, functions = static_cast<std::int64_t>(activations.size()) / s.directions;
  for (std::int64_t d = 0; d < s.directions; ++d) {
    const bool reverse = d == 1 || direction == "reverse";
    const T* bias = ctx.has_input(3) ? ctx.input(3).data<T>() + d * 2 * width : nullptr;
    const std::vector<T> sums = inputs(d);
    parallel_for(s.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<T> hidden(static_cast<std::size_t>(s.hidden)), next(hidden);
      for (std::int64_t n = begin; n < end; ++n) {
        const T* start = initial ? initial + s.state_at(d, n) : nullptr;
        for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = start ? start[i] : T{};
        const std::int64_t length = lengths[static_cast<std::size_t>(n)];
        for (std::int64_t i = 0; i < length; ++i) {
          const std::int64_t t = reverse ? length - 1 - i : i;
          step(RecurrentStep<T>{d, n, sums.data() + s.x_row(t, n) * width, bias, activations.data() + d * functions,
                                hidden.data(), next.data()});
          hidden.swap(next);
          if (y) std::copy(hidden.begin(), hidden.end(), y + s.y_at(t, d, n));
        }
        if (y_h) std::copy(hidden.begin(), hidden.end(), y_h + s.state_at(d, n));
      }
    });
  }
}

/// The sum of a[i] * b[i].
template <typename T>
T dot(const T* a, const T* b, std::int64_t n) noexcept {
  T sum{};
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// R: (width, hidden).
template <typename T>
const T* recurrent_weights(const KernelContext& ctx, const RecurrentSizes& s, std::int64_t width, std::int64_t d) {
  return ctx.input(2).data<T>() + d * width * s.hidden;
}

void run_rnn(KernelContext& ctx) {
  const RecurrentSizes s = recurrent_sizes(ctx, 1);
  const std::int64_t h = s.hidden;
  const auto activations = activations_of(ctx.layer(), {"Tanh"}, s.directions);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
    const auto inputs = [&](std::int64_t d) { return sums_of_inputs<T>(ctx, s, h, d); };
    run_recurrent<T>(ctx, s, 1, activations, inputs, [&](const RecurrentStep<T>& step) {
      const T* const r = recurrent_weights<T>(ctx, s, h, step.direction);
      for (std::int64_t i = 0; i < h; ++i) {
        T sum = step.from_input[i] + dot(r + i * h, step.hidden, h);
        if (step.bias) sum += step.bias[i] + step.bias[h + i];
        step.next[i] = step.activation[0](clipped(sum, clip));
      }
    });
  });
}

void run_gru(KernelContext& ctx) {
  const RecurrentSizes s = recurrent_sizes(ctx, 3);
  const std::int64_t h = s.hidden;
  const auto activations = activations_of(ctx.layer(), {"Sigmoid", "Tanh"}, s.directions);
  const bool linear_before_reset = ctx.attributes().integer("linear_before_reset", 0) != 0;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
    const auto inputs = [&](std::int64_t d) { return sums_of_inputs<T>(ctx, s, 3 * h, d); };
    run_recurrent<T>(ctx, s, 3, activations, inputs, [&](const RecurrentStep<T>& step) {
      const T* const r = recurrent_weights<T>(ctx, s, 3 * h, step.direction);
      const auto w_bias = [&](std::int64_t i) { return step.bias ? step.bias[i] : T{}; };
      const auto r_bias = [&](std::int64_t i) { return step.bias ? step.bias[3 * h + i] : T{}; };
      std::vector<T> update(static_cast<std::size_t>(h)), reset(update);
      const auto gate = [&](std::int64_t i) {  // i counts rows of W and R
        const T sum = step.from_input[i] + dot(r + i * h, step.hidden, h) + (w_bias(i) + r_bias(i));
        return step.activation[0](clipped(sum, clip));
      };
      for (std::size_t i = 0; i < update.size(); ++i) {
        update[i] = gate(static_cast<std::int64_t>(i));
        reset[i] = gate(h + static_cast<std::int64_t>(i));
      }
      std::vector<T> scaled(step.hidden, step.hidden + h);
      if (!linear_before_reset)
        for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] *= reset[i];
      for (std::size_t i = 0; i < update.size(); ++i) {
        const std::int64_t row = 2 * h + static_cast<std::int64_t>(i);
        T recurrent = dot(r + row * h, scaled.data(), h) + r_bias(row);
        if (linear_before_reset) recurrent *= reset[i];
        const T candidate = step.activation[1](clipped(step.from_input[row] + recurrent + w_bias(row), clip));
        step.next[i] = (T{1} - update[i]) * candidate + update[i] * step.hidden[i];
      }
    });
  });
}

/// `inputs`: of run_recurrent(). state_sums(direction, H(t-1), to): R * H(t-1).
template <typename T, typename Inputs, typename StateSums>
void run_lstm_of(KernelContext& ctx, const RecurrentSizes& s, const Inputs& inputs, const StateSums& state_sums) {
  const std::int64_t h = s.hidden;
  const auto activations = activations_of(ctx.layer(), {"Sigmoid", "Tanh", "Tanh"}, s.directions);
  const bool input_forget = ctx.attributes().integer("input_forget", 0) != 0;
  if (ctx.has_input(7) && ctx.input(7).shape() != Shape{s.directions, 3 * h})
    ctx.fail("expected P of shape {}, got {}", to_string({s.directions, 3 * h}), to_string(ctx.input(7).shape()));
  const T clip = static_cast<T>(ctx.attributes().real("clip", 0));
  Tensor cells = ctx.has_output(2) ? ctx.output(2) : Tensor(ctx.input(0).type(), s.state_shape());
  T* all_cells = cells.data<T>();
  if (ctx.has_input(6)) {
    const auto initial = ctx.input(6).values<T>();
    std::copy(initial.begin(), initial.end(), all_cells);
  } else {
    std::fill(all_cells, all_cells + cells.size(), T{});
  }
  run_recurrent<T>(ctx, s, 4, activations, inputs, [&](const RecurrentStep<T>& step) {
    const T* peephole = ctx.has_input(7) ? ctx.input(7).data<T>() + step.direction * 3 * h : nullptr;
    T* cell = all_cells + s.state_at(step.direction, step.sequence);
    std::vector<T> from_state(static_cast<std::size_t>(4 * h));
    state_sums(step.direction, step.hidden, from_state.data());
    for (std::int64_t i = 0; i < h; ++i) {
      const auto sum = [&](std::int64_t gate) {
        const std::int64_t row = gate * h + i;
        const T value = step.from_input[row] + from_state[static_cast<std::size_t>(row)];
        return step.bias ? value + (step.bias[row] + step.bias[4 * h + row]) : value;
      };
      const auto peep = [&](std::int64_t gate, T state) { return peephole ? peephole[gate * h + i] * state : T{}; };
      const T in = step.activation[0](clipped(sum(0) + peep(0, cell[i]), clip));
      const T forget = input_forget ? T{1} - in : step.activation[0](clipped(sum(2) + peep(2, cell[i]), clip));
      const T candidate = step.activation[1](clipped(sum(3), clip));
      cell[i] = forget * cell[i] + in * candidate;
      const T out = step.activation[0](clipped(sum(1) + peep(1, cell[i]), clip));
      step.next[i] = out * step.activation[2](cell[i]);
    }
  });
}

void run_lstm(KernelContext& ctx) {
  const RecurrentSizes s = recurrent_sizes(ctx, 4);
  const std::int64_t h = s.hidden;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    run_lstm_of<T>(
        ctx, s, [&](std::int64_t d) { return sums_of_inputs<T>(ctx, s, 4 * h, d); },
        [&](std::int64_t d, const T* hidden, T* to) {
          const T* const r = recurrent_weights<T>(ctx, s, 4 * h, d);
          for (std::int64_t i = 0; i < 4 * h; ++i) to[i] = dot(r + i * h, hidden, h);
        });
  });
}

void infer_dynamic_lstm(InferContext& ctx) {
  for (int i = 0; i < 3; ++i) ctx.set_type(i, DataType::kFloat32);
  for (int i : {0, 3, 5, 6, 7, 8, 10}) require_type(ctx, i, DataType::kFloat32);
  const RecurrentSizes s = dynamic_sizes(ctx.layer(), ctx.shape(0), ctx.shape(1), ctx.shape(2));
  const Shape by_direction{s.directions}, by_column{s.directions, 4 * s.hidden};
  for (int i : {8, 9, 10, 11})
    if (ctx.has_input(i) && ctx.shape(i) != by_direction && ctx.shape(i) != by_column)
      ctx.fail("expected {} or {} as the shape of input {}, got {}", to_string(by_direction), to_string(by_column), i,
               to_string(ctx.shape(i)));
  infer_shapes(ctx, s, 4, 2);
}

/// Some rows of numbers, quantized by one scale, times the matrix of a direction.
void multiply_dynamically(std::span<const float> rows, const DynamicMatrix& matrix, std::int64_t d, float* to) {
  const std::int64_t k = matrix.centered.shape()[1], columns = matrix.centered.shape()[2];
  const auto count = static_cast<std::int64_t>(rows.size()) / std::max<std::int64_t>(1, k);
  const DynamicScale by = dynamic_scale(rows);
  std::vector<std::uint8_t> bytes(rows.size());
  quantize_dynamically(rows, by, bytes.data());
  std::vector<std::int32_t> x(rows.size()), sums(static_cast<std::size_t>(count * columns));
  std::ranges::transform(bytes, x.begin(), [&](std::uint8_t byte) { return std::int32_t{byte} - by.zero; });
  multiply_parallel(x.data(), matrix.centered.data<std::int32_t>() + d * k * columns, sums.data(), count, columns, k);
  const float* scales = matrix.scales.data<float>() + d * columns;
  for (std::int64_t i = 0; i < count * columns; ++i)
    to[i] = static_cast<float>(sums[static_cast<std::size_t>(i)]) * (by.scale * scales[i % columns]);
}

/// X is quantized by one scale, and each state by its own. ONNX Runtime takes the states of some sequences together: of
/// which depends on its threads.
void run_dynamic_lstm(KernelContext& ctx) {
  const RecurrentSizes s = dynamic_sizes(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape());
  const auto matrix = [&](int weights, int scale) {
    return dynamic_matrix(ctx.input(weights), ctx.input(scale),
                          ctx.has_input(scale + 1) ? ctx.input(scale + 1) : Tensor());
  };
  const DynamicMatrix w = matrix(1, 8), r = matrix(2, 10);
  const auto inputs = [&](std::int64_t d) {
    std::vector<float> sums(static_cast<std::size_t>(s.seq * s.batch * 4 * s.hidden));
    multiply_dynamically(ctx.input(0).values<float>(), w, d, sums.data());
    return sums;
  };
  run_lstm_of<float>(ctx, s, inputs, [&](std::int64_t d, const float* hidden, float* to) {
    multiply_dynamically({hidden, static_cast<std::size_t>(s.hidden)}, r, d, to);
  });
}

/// A row of the table.
OpDef recurrent_op(OpDef op, Function function, Infer infer, Run run) {
  op.function = function;
  op.types = {kFloats, kFloats, kFloats, kFloats, kIndices, kFloats};
  op.multiply_adds = multiply_adds_of_recurrent;
  return make_op(op, infer, run);
}

}  // namespace

OpTable recurrent() {
  return {
      // RNN, ai.onnx 1, 7, 14, 22: a simple recurrent layer, H(t) = f(W x(t) + R H(t-1) + Wb + Rb).
      // Inputs: X, W, R, B, sequence_lens, initial_h. Outputs: Y, Y_h.
      recurrent_op({.name = "RNN", .inputs = {3, 6}, .outputs = {0, 2}, .weights = 0b1110}, Function::kRnn,
                   infer_recurrent<1, 1>, run_rnn),
      // GRU, ai.onnx 1, 3, 7, 14, 22: gated recurrent unit. Gates in the order update (z), reset (r), hidden (h).
      // Inputs and outputs as those of RNN.
      recurrent_op({.name = "GRU", .inputs = {3, 6}, .outputs = {0, 2}, .weights = 0b1110}, Function::kGru,
                   infer_recurrent<3, 1>, run_gru),
      // LSTM, ai.onnx 1, 7, 14, 22: long short-term memory. Gates in the order input, output, forget, cell (iofc).
      // Inputs: those of RNN, initial_c, P (peepholes of i, o, f). Outputs: Y, Y_h, Y_c.
      recurrent_op({.name = "LSTM", .inputs = {3, 8}, .outputs = {0, 3}, .weights = 0b10001110}, Function::kLstm,
                   infer_recurrent<4, 2>, run_lstm),
      // DynamicQuantizeLSTM, com.microsoft 1: an LSTM whose operands of products are quantized as DynamicQuantizeLinear
      // does it. Inputs: those of LSTM, then the scales and zero points of W and R.
      fixed_op({.name = "DynamicQuantizeLSTM",
                .domain = "com.microsoft",
                .inputs = {12, 12},
                .outputs = {0, 3},
                .types = {kFloats, kBytes, kBytes, kFloats, kIndices, kFloats, kFloats, kFloats, kFloats | kBytes},
                .weights = 0b111110001110},
               infer_dynamic_lstm, run_dynamic_lstm),
  };
}

}  // namespace ulpscope::ops
