// What a backend gives to the engine: things that can be run on bound tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

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
  virtual ~Kernel() = default;
  /// Types, shapes and layouts are those that the kernel was made for; everything was checked when the plan was built.
  /// A kernel with open output shapes replaces the tensors in `outputs`.
  virtual void run(std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs) const = 0;
  /// What it is, for people: "reorder", "oneDNN brgconv:avx512_core".
  virtual std::string name() const = 0;
};

}  // namespace ulpscope
