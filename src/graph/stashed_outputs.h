// Outputs whose type an attribute says.
#pragma once

#include "graph/network.h"

namespace ulpscope {

/// The mean and the inverse deviation that a normalization of rows hands out beside its result: they have the type that
/// `stash_type` says, which no precision changes.
inline bool is_stashed(const Layer& layer, std::size_t output) noexcept {
  return layer.op->kind == OpKind::kNormalization && layer.op->axes != nullptr && (output == 1 || output == 2);
}

}  // namespace ulpscope
