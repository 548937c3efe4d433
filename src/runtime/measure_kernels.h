// The model of a GPU's kernels, fitted to small networks that are measured there.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernel_model.h"
#include "engine/options.h"
#include "engine/target.h"
#include "runtime/measure_target.h"

namespace ulpscope {

/// What one probe (runtime/kernel_probes.h) took.
struct ProbeTime {
  int probe = 0;
  PrecisionSet precisions;  ///< Beside fp32: every layer takes the lowest,
  bool mixed = false;       ///< but for half of those that compute, which stay in fp32.
  double us = 0;
};

/// Where they were measured, and all of them.
struct ProbeTimes {
  Target::Origin origin;
  std::vector<ProbeTime> times;
};

/// Measures the first `probes` networks in fp32, fp16 and int8, some in fp8, in tf32 and in mixtures, on a backend
/// whose device has a clock. `done` is called with all that is there after every network. Throws Error(kUnsupported)
/// without a device.
ProbeTimes measure_probes(const std::string& backend, int probes, const std::string& program,
                          const MeasureProgress& progress, const std::function<void(const ProbeTimes&)>& done);

/// Least squares of relative errors with factors of 0 or more, on a target of that bandwidth and cache. Needs no
/// device: what a probe computes is known. Throws Error(kInvalidArgument) for fewer than 20 times.
KernelModel fit_kernels(const ProbeTimes& times, const Target& target);

/// Microseconds that a target tells of what was measured, or might be: `time.us` is not read.
double estimate_probe(const ProbeTime& time, const Target& target);

std::string probe_times_to_json(const ProbeTimes& times);
/// `where` names the text in messages. Throws Error(kInvalidFile).
ProbeTimes probe_times_from_json(std::string_view text, const std::string& where);

}  // namespace ulpscope
