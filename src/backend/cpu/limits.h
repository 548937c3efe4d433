// What this machine does at best, measured: what steps of a plan are held against.
#pragma once

namespace ulpscope::cpu {

/// With the threads of the caller (set_num_threads).
struct MachineLimits {
  double multiply_adds = 0;  ///< Per microsecond, in float32: of a product of matrices that stay in the caches.
  double bytes = 0;          ///< Per microsecond, read or written: of a copy that is larger than caches.
};

/// Takes about a tenth of a second.
MachineLimits measure_limits();

}  // namespace ulpscope::cpu
