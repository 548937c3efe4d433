// Which layers read elements, of 8 bits or less, in place of numbers: decided here alone. Fusion, the descriptions of
// kernels and typed models follow it.
#pragma once

#include <cstdint>

#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// What a layer does with the elements of its operands, and why.
enum class Reading : std::uint8_t {
  kNumbers,          ///< It reads numbers.
  kQuantized,        ///< Reads elements: its precision says so, it has a form for it, and its inputs have scales.
  kCodedWeights,     ///< Reads numbers; its precision says that its constant weights are stored as elements.
  kQuantizedInFile,  ///< A product that reads elements: its operands come out of DequantizeLinear.
  kDequantized,      ///< Reads numbers that come out of DequantizeLinear; grouped as what reads elements: alone.
  kBias,             ///< The addition of its bias that is one with a product of elements at every level of fusion.
};

/// Per layer of a network for these shapes. An assignment holds for all shapes; who has constant operands and a bias
/// depends on them, so that this is no part of it.
using Readings = IdMap<LayerId, Reading>;

Readings find_element_readers(const Specialization& spec, const Assignment& assignment);

constexpr bool reads_elements(Reading reading) noexcept {
  return reading == Reading::kQuantized || reading == Reading::kQuantizedInFile;
}

}  // namespace ulpscope
