// What a backend gives to the engine: things that can be run on bound tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// The order of a tensor's elements in memory. The shape is always the logical one.
enum class Layout : std::uint8_t {
  kDense,         ///< Row-major.
  kChannelsLast,  ///< Of rank 3 and 4: dimension 1 innermost (nwc, nhwc).
};

/// One step of a plan. Immutable after construction; `run` may be called by several threads at once, on distinct
/// tensors.
class Kernel {
 public:
  using Inputs = std::span<const Tensor* const>;
  using Outputs = std::span<Tensor* const>;

  virtual ~Kernel() = default;
  /// Types, shapes and layouts are those that the kernel was made for; everything was checked when the plan was built.
  /// A kernel with open output shapes replaces the tensors in `outputs`.
  virtual void run(Inputs inputs, Outputs outputs) const = 0;
  /// What it is, for people: "reorder", "oneDNN brgconv:avx512_core".
  virtual std::string name() const = 0;
};

/// A kernel that is a function of inputs and outputs.
template <typename Run>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string name, Run run) : name_(std::move(name)), run_(std::move(run)) {}
  std::string name() const override { return name_; }
  void run(Inputs inputs, Outputs outputs) const override { run_(inputs, outputs); }

 private:
  const std::string name_;
  const Run run_;
};

template <typename Run>
std::unique_ptr<Kernel> make_kernel(std::string name, Run run) {
  return std::make_unique<FunctionKernel<Run>>(std::move(name), std::move(run));
}

}  // namespace ulpscope
