// What is known of LSTM, GRU and RNN without their values: sizes, and what a fast path of a backend has to follow.
#pragma once

#include <optional>

#include "graph/network.h"

namespace ulpscope::ops {

/// The sizes of one recurrent layer. X is (seq, batch, input), or (batch, seq, input) when batch_first (layout = 1).
struct RecurrentSizes {
  std::int64_t seq = 0, batch = 0, input = 0, hidden = 0, directions = 1;
  bool batch_first = false;

  /// Of Y.
  Shape sequence_shape() const {
    return batch_first ? Shape{batch, seq, directions, hidden} : Shape{seq, directions, batch, hidden};
  }
  /// Of Y_h, Y_c and the initial states.
  Shape state_shape() const {
    return batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  }
  /// Index of the row (t, n) of X.
  std::int64_t x_row(std::int64_t t, std::int64_t n) const noexcept {
    return batch_first ? n * seq + t : t * batch + n;
  }
  /// Offset of (t, direction, n, 0) in Y.
  std::int64_t y_at(std::int64_t t, std::int64_t d, std::int64_t n) const noexcept {
    return (batch_first ? (n * seq + t) * directions + d : (t * directions + d) * batch + n) * hidden;
  }
  /// Offset of (direction, n, 0) in a state.
  std::int64_t state_at(std::int64_t d, std::int64_t n) const noexcept {
    return (batch_first ? n * directions + d : d * batch + n) * hidden;
  }
};

/// Of X, W and R; checks them, the direction and hidden_size. `gates`: 1 for RNN, 3 for GRU, 4 for LSTM.
RecurrentSizes recurrent_sizes(const Layer& layer, const Shape& x, const Shape& w, const Shape& r, std::int64_t gates);

/// LSTM, GRU and RNN.
bool is_recurrent(const Layer& layer);

enum class RecurrentCell : std::uint8_t { kRnn, kGru, kLstm };

/// A recurrent layer whose gates are sigmoids, its candidates tanh (of an RNN also Relu), over whole sequences.
struct RecurrentForm {
  RecurrentCell cell = RecurrentCell::kRnn;
  std::int64_t gates = 1;  ///< In the operator's order: RNN i; GRU z, r, h; LSTM i, o, f, c.
  RecurrentSizes sizes;
  bool backward = false;             ///< Its only direction runs from the end to the start; a second one always does.
  bool relu = false;                 ///< RNN: Relu instead of Tanh.
  bool linear_before_reset = false;  ///< GRU: the reset gate scales sums, not the state that they are made of.
  bool input_forget = false;         ///< LSTM: the forget gate is one minus the input gate.
  float clip = 0;                    ///< Sums are limited to [-clip, clip]; 0: no limit.
};

/// Nothing for other layers, other activations, and where sequences of a batch may have lengths of their own.
std::optional<RecurrentForm> recurrent_form(const Layer& layer, const Shape& x, const Shape& w, const Shape& r);

/// DynamicQuantizeLSTM: an LSTM with W and R as bytes, [directions, input or hidden, 4 * hidden]; its inputs 8 to 11
/// are the scale and the zero point of W, and those of R: one for each direction, or for each column of each.
bool is_dynamic_lstm(const Layer& layer);
RecurrentSizes dynamic_sizes(const Layer& layer, const Shape& x, Shape w, Shape r);
/// As recurrent_form() of such a layer.
std::optional<RecurrentForm> dynamic_form(const Layer& layer, const Shape& x, const Shape& w, const Shape& r);
struct DynamicMatrix {
  Tensor centered;  ///< int32, less the zero points.
  Tensor scales;    ///< float32 [directions, 4 * hidden].
};
/// `zeros` may be absent.
DynamicMatrix dynamic_matrix(const Tensor& bytes, const Tensor& scales, const Tensor& zeros);

/// Wb + Rb of B, float32 [directions, 2 * gates * hidden]: [directions, gates * hidden]. The candidate of a GRU with
/// linear_before_reset has Wb alone: its Rb is scaled, too.
Tensor summed_biases(const Tensor& biases, const RecurrentForm& form);
/// Rb of the candidate of a GRU: [directions, hidden].
Tensor candidate_biases(const Tensor& biases, const RecurrentForm& form);

}  // namespace ulpscope::ops
