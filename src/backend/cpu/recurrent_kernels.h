// The loops of LSTM, GRU and RNN, compiled once per instruction set (program_kernels.h).
#pragma once

#include <cstdint>

#include "ops/recurrent/form.h"

namespace ulpscope::cpu {

/// What happens to the sums of one sequence at one time step. All vectors have `width` elements per gate, a multiple of
/// RecurrentKernels::lanes; those beyond the hidden size are there for the vectors' sake.
struct RecurrentRow {
  const ops::RecurrentForm* form;
  std::int64_t width;
  const float* from_input;  ///< W x + biases, per gate.
  const float* sums;        ///< R h, per gate.
  const float* bias;        ///< GRU with linear_before_reset: of R, candidate. Else null.
  const float* peephole;    ///< LSTM: of i, o, f. May be null.
  const float* hidden;      ///< h(t-1).
  float* next;              ///< h(t).
  float* cell;              ///< LSTM: c, in place.
  float* update;            ///< GRU that resets the state first: its update gate,
  const float* candidate;   ///< and R (reset gate * h(t-1)).
};

struct RecurrentKernels {
  int lanes;  ///< Of a vector.
  int panel;  ///< Columns of a packed matrix that lie side by side; a multiple of lanes.

  /// out[r, :] = sum over k of a[r, k] * b[k, :], added up in the order of k whatever `rows` is. b is packed in panels:
  /// [columns / panel, k, panel]. Strides: from row to row.
  void (*product)(const float* a, std::int64_t stride, std::int64_t rows, const float* packed, std::int64_t k,
                  std::int64_t columns, float* out, std::int64_t out_stride);
  /// The whole cell; of a GRU without linear_before_reset the second half, after gru_gates().
  void (*cell)(const RecurrentRow& row);
  /// GRU without linear_before_reset: writes `update`, and into `next` the reset gate times `hidden`.
  void (*gru_gates)(const RecurrentRow& row);
};

}  // namespace ulpscope::cpu
