// LSTM, GRU and RNN over time, after the products with all inputs at once.
#pragma once

#include <memory>

#include "backend/cpu/product.h"
#include "backend/kernel.h"
#include "ops/recurrent/form.h"

namespace ulpscope::cpu {

/// Elements per gate in everything that the kernel works on: `hidden` and what vectors need beyond it.
std::int64_t padded_gate(std::int64_t hidden);

/// `values` is [..., gates * hidden, row], dense; every gate becomes `width` rows, the new ones zeros.
Tensor pad_gates(const Tensor& values, std::int64_t gates, std::int64_t hidden, std::int64_t width, std::int64_t row);

struct RecurrentSpec {
  ops::RecurrentForm form;
  ConstantSource recurrent;  ///< R, rounded.
  std::string key;           ///< Names it with everything done to it.
  Tensor bias;      ///< GRU with linear_before_reset: of R, candidate, [directions, padded_gate]. Else may be absent.
  Tensor peephole;  ///< LSTM: [directions, 3 * padded_gate]. May be absent.
  /// The scales of R, [directions, gates * padded_gate], where that has integers: the state of each sequence is
  /// quantized as DynamicQuantizeLinear does it. REQUIRES: float32 holds all sums, or `by_bytes`.
  Tensor state_scales = {};
  bool by_bytes = false;  ///< `recurrent` is int16, [directions, gates * padded_gate, hidden], and int8 holds it.
};

/// Inputs: W x + biases as [rows of X, directions * gates * padded_gate], the initial hidden state, of LSTM the initial
/// cell state; both states may be absent. Outputs: those of the operator, any of which may be unwanted. A sequence has
/// the same bits in every batch.
std::unique_ptr<Kernel> make_recurrent_kernel(RecurrentSpec spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
