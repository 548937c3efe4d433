// CUDA source of one time step of LSTM, GRU and RNN.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/kernel_source.h"
#include "formats/rounding.h"
#include "ops/recurrent/form.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// A step of all directions and sequences. Sums, hidden and cell states are float32. States are
/// [directions, batch, recurrent_width(hidden)] with zeros behind the units; kernels leave those alone.
struct RecurrentStepSpec {
  ops::RecurrentForm form;
  DataType weights = DataType::kFloat16;  ///< Of R: float16, bfloat16 or float32.
  bool biased = false, peepholes = false;
  std::int64_t sum_stride = 0;  ///< From one sequence to the next in W x, in elements.
  /// Of Y; absent: nobody wants it.
  struct Sequence {
    DataType type = DataType::kFloat16;  ///< float16, bfloat16 or float32.
    Rounding rounding = Rounding::kNone;
    std::int64_t stride = 0;  ///< From one sequence to the next.
  };
  std::optional<Sequence> y;
};

/// Elements from one row of R, and of a state, to the next: rows are read in words of 16 bytes.
std::int64_t recurrent_width(std::int64_t hidden);

/// All steps of a layer have the same kernels; x and y are addresses of (t, direction, sequence 0, gate or unit 0), one
/// per direction. R is [directions, gates * hidden, recurrent_width(hidden)]; biases (Wb + Rb) and peepholes are
/// float32, [directions, gates or 3, hidden]; the bias of R that a GRU with linear_before_reset adds to its candidate's
/// product is by itself.
///
///     LSTM, RNN, GRU with linear_before_reset:
///         kernel(x..., R, h(t-1) [, biases] [, bias of the candidate] [, peepholes]; h(t) [, cell] [, y...])
///     other GRU:
///         kernel(x..., R, h(t-1) [, biases]; update gate, reset gate * h(t-1))
///         kernel(x..., R, reset gate * h(t-1) [, biases], h(t-1), update gate; h(t) [, y...])
///
/// REQUIRES: no size is 0.
std::vector<KernelSource> recurrent_sources(const RecurrentStepSpec& spec);

}  // namespace ulpscope::cuda
