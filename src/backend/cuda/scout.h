// What a plan will ask of cuDNN, known before it is lowered.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/lowering.h"

namespace ulpscope::cuda {

/// Takes the place of a target in a lowering whose steps nobody wants. It keeps nothing on the device, and takes for
/// granted that cuDNN computes what is not known yet; where that is wrong, the next lowering asks for something else.
class Scout final : public TargetInFront {
 public:
  Scout(LoweringTarget& target, std::function<bool(const ConvolutionSpec&)> knows)
      : TargetInFront(target), knows_(std::move(knows)) {}

  std::shared_ptr<const DeviceMemory> constant(WeightCache&, const std::string&,
                                               const std::function<Tensor()>&) override {
    return nowhere();
  }
  std::shared_ptr<const DeviceMemory> matrices(WeightCache&, const std::string&, std::span<const StoredMatrix>,
                                               DataType, const std::function<Tensor()>&) override {
    return nowhere();
  }
  bool has_convolution(const ConvolutionSpec& spec) override {
    if (knows_(spec)) return target_.has_convolution(spec);
    if (std::ranges::find(unknown_, spec) == unknown_.end()) unknown_.push_back(spec);
    return true;
  }

  /// Each once, in the order in which the plan asks for them.
  const std::vector<ConvolutionSpec>& unknown() const noexcept { return unknown_; }

 private:
  static std::shared_ptr<const DeviceMemory> nowhere() { return std::make_shared<const DeviceMemory>(Address{0}, 0); }

  const std::function<bool(const ConvolutionSpec&)> knows_;
  std::vector<ConvolutionSpec> unknown_;
};

}  // namespace ulpscope::cuda
