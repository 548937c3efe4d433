#include "runtime/measured_plan.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "engine/assign.h"
#include "graph/evaluate.h"
#include "runtime/by_shapes.h"

namespace ulpscope {

MeasuredPlan::MeasuredPlan(const Network& network, const BuildOptions& build, std::span<const Tensor> inputs) {
  for (const Tensor& input : inputs) inputs_.push_back(to_physical(input));
  const std::vector<Shape> shapes = shapes_of(inputs);
  spec_ = specialize(network, shapes);
  assignment_ = assign_precisions(*spec_, build);
  executable_.emplace(network, assignment_, build, spec_);
  plan_ = executable_->plan_for(shapes);
}

double MeasuredPlan::whole_us() const {
  if (const auto us = device_us()) return *us;
  constexpr int kRuns = 30;
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    plan_->run(inputs_);
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    least = std::min(least, taken.count());
  }
  return least;
}

double MeasuredPlan::longest_us() const {
  double longest = 0;
  for (const StepTime& step : steps()) longest = std::max(longest, step.microseconds);
  return longest > 0 ? longest : whole_us();
}

}  // namespace ulpscope
