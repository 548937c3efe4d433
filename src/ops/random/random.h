// The generator behind the random operators. Every run gives the same numbers: networks are compared with each other,
// and a trial must differ by its precisions alone.
#pragma once

#include <cstdint>
#include <random>

#include "graph/op.h"

namespace ulpscope::ops {

/// MT19937 with the draws of NumPy's RandomState: RandomUniform with `seed` s gives what RandomState(s).uniform gives.
class RandomStream {
 public:
  explicit RandomStream(std::uint32_t seed) : engine_(seed) {}

  /// The next raw word.
  std::uint32_t word() { return static_cast<std::uint32_t>(engine_()); }
  /// In [0, 1), with 53 random bits.
  double uniform() {
    const std::uint32_t high = word() >> 5, low = word() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  /// Standard normal, by Marsaglia's polar method; draws come in pairs.
  double normal();

 private:
  std::mt19937 engine_;
  bool has_spare_ = false;
  double spare_ = 0;
};

/// The stream of a layer: by its attribute `seed` (an integral value is the seed itself, any other its float32 bits),
/// else by a hash of the layer's name, so that unseeded layers differ from each other but not from run to run.
RandomStream random_stream(const Layer& layer);

}  // namespace ulpscope::ops
