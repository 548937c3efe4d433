// Layers that say something of each element: true or false.
#pragma once

#include <optional>

#include "graph/network.h"

namespace ulpscope::ops {

enum class Predicate : std::uint8_t {
  kEqual,
  kGreater,
  kGreaterOrEqual,
  kLess,
  kLessOrEqual,
  kAnd,
  kOr,
  kXor,
  kNot,
  kIsNan,
  kIsInfinity,  ///< Of either sign; the next two: of one.
  kIsPositiveInfinity,
  kIsNegativeInfinity,
  kIsNeither,  ///< False everywhere: IsInf that is asked for no sign.
};

/// Nothing for other layers.
std::optional<Predicate> predicate_of(const Layer& layer);

}  // namespace ulpscope::ops
