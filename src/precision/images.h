// Which values of a network are images, whose channels lie side by side where the CPU computes them.
#pragma once

#include "engine/specialization.h"

namespace ulpscope {

/// Per tensor, 1 for an image. Between two networks that hand such values on as [n, h, w, c], a Transpose on each side
/// costs nothing, where handing them on as [n, c, h, w] takes two copies. True of tensors of rank 4 that a convolution
/// or a pool reads or makes, and of what layers make of them in the same shape. A guess: either way the values are the
/// same.
using Images = IdMap<TensorId, char>;
Images images_of(const Specialization& spec);

}  // namespace ulpscope
