// Differences that have lost their digits and feed a function that is singular near 0: E[x^2] - E[x]^2 ahead of 1 /
// sqrt.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/assignment.h"
#include "precision/trials.h"

namespace ulpscope {

/// One of them. The samples of a search may all pass and others fail by far, since what is left of the difference is
/// noise that the function magnifies.
struct SingularCancellation {
  LayerId difference = kNone;   ///< An Add or Sub,
  LayerId singular = kNone;     ///< and the layer that divides by what comes of it, takes its root or its logarithm.
  double loss = 0;              ///< The largest (|a| + |b|) / |a - b|, over samples and elements; may be infinite.
  std::size_t sample = 0;       ///< Where that is.
  double digits = 0;            ///< Bits of the significand of the type that it would run in.
  std::vector<LayerId> layers;  ///< What should stay in higher precision: difference, operands, and the way to it.
};

/// "'a' (Sub) loses 9.3 of 11 bits in sample 2, and 'b' (Sqrt) reads what is left".
std::string text_of(const Network& network, const SingularCancellation& cancellation);

/// Those for which (|a| + |b|) / |a - b| * u * 4 > 1 on one of the first `samples` samples, with the unit roundoff u of
/// the difference's type in `low`, in network order. Offsets and factors on the way to the function count. `layers` are
/// among `candidates`.
std::vector<SingularCancellation> find_singular_cancellations(Trials& trials, const Assignment& low,
                                                              const std::vector<LayerId>& candidates,
                                                              std::size_t samples);

}  // namespace ulpscope
