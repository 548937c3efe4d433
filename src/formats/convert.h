// Narrowing of whole arrays between element types.
#pragma once

#include <cstddef>

#include "formats/numeric_format.h"

namespace ulpscope {

/// out[i] = in[i] converted. Floats to integers truncate towards zero (NaN and values outside of the range give what
/// x86 conversions through int64 give, as NumPy does); integers keep their low bits; to bool: != 0; narrow floats round
/// to nearest even once, also from float64 and int64. `conversion`: to the floats of 8 bits and less. The arrays do not
/// overlap.
void convert_elements(DataType from, const void* in, DataType to, void* out, std::size_t count,
                      Narrowing conversion = {});

}  // namespace ulpscope
