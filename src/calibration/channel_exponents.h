// Which powers of two the channels of one tensor take.
#pragma once

#include <optional>

#include "calibration/channel_fold.h"
#include "calibration/equalize.h"
#include "engine/specialization.h"

namespace ulpscope {

/// The exponents with the smallest estimated error of the readers. Nothing where it would not be worth it. `scale`: the
/// int8 scale of the tensor.
std::optional<Equalization> find_equalization(const Specialization& spec, const Fold& fold, const ChannelRange& range,
                                              float scale);

}  // namespace ulpscope
