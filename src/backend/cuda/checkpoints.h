// Where the run of a plan can begin: between two steps, with what lies in memory there named by what it depends on.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/activation_store.h"
#include "backend/cuda/steps.h"

namespace ulpscope::cuda {

struct Checkpoint {
  std::size_t step = 0;  ///< The first one that is still to run.
  struct Value {
    ActivationKey key;
    int buffer;
  };
  /// All that this step and later ones read of earlier ones, but for what was uploaded.
  std::vector<Value> values;
};

/// Of the steps [first, last), which run on the device, in their order; none at `first`. Of every stretch of steps the
/// place where the fewest bytes are alive. Names tell algorithms apart: REQUIRES that they are chosen.
std::vector<Checkpoint> checkpoints_of(const Steps& steps, std::size_t first, std::size_t last);

}  // namespace ulpscope::cuda
