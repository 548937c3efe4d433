// The figures of a target, measured: rates and groups on any backend that has a plan.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "engine/options.h"
#include "engine/target.h"
#include "graph/network.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Called with what is measured now ("products in fp16"); may throw to end it.
using MeasureProgress = std::function<void(const std::string& what)>;

/// "2026-11-23", in UTC.
std::string date_of_today();

/// Rates of products in every precision, bandwidth, and the cost of a launch, of a backend on so many threads (0: one
/// per core). `program`: for the origin. Takes some seconds. Throws Error(kUnsupported) where there is no device.
Target measure_rates(const std::string& backend, int threads, const std::string& program,
                     const MeasureProgress& progress);

struct GroupCount {
  int kernels = 0;   ///< Different ones, over all precisions.
  int left_out = 0;  ///< Groups that have no time of their own, or no text, in the assignment with the most of them.
};

/// Adds to `target` the times of the groups of a network on these inputs (in their order, of their types): all in fp32,
/// all in each enabled precision, and in a few mixtures, since a boundary leaves parts of groups. `build`: backend,
/// threads, fusion, scales and enabled precisions. Groups of one kernel share one time: the mean over all of
/// these.
GroupCount measure_groups(const Network& network, const BuildOptions& build, std::span<const Tensor> inputs,
                          Target& target, const MeasureProgress& progress);

}  // namespace ulpscope
