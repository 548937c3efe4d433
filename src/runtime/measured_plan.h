// A network that is measured on inputs at hand.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/options.h"
#include "graph/network.h"
#include "runtime/executable.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A network with its plan for the inputs at hand.
class MeasuredPlan {
 public:
  /// The network outlives it.
  MeasuredPlan(const Network& network, const BuildOptions& build, std::span<const Tensor> inputs);

  const Specialization& spec() const { return *spec_; }
  const Assignment& assignment() const { return assignment_; }
  std::vector<StepTime> steps() const { return plan_->profile(inputs_); }
  std::optional<double> device_us() const { return plan_->microseconds(); }

  /// By the clock of the device, else by that of the CPU: the least of several runs.
  double whole_us() const;
  /// Of the step that takes longest: the others bring operands to it.
  double longest_us() const;

 private:
  std::vector<Tensor> inputs_;
  std::shared_ptr<const Specialization> spec_;
  Assignment assignment_;
  std::optional<Executable> executable_;
  std::shared_ptr<const Plan> plan_;
};

}  // namespace ulpscope
