// Convolutions on the device: cuDNN's graphs, and generated kernels for those that it has no (fast) plan for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernel_source.h"
#include "backend/cuda/program_source.h"
#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"

namespace ulpscope::cuda {

/// What is done to the sums, in this order, in float32, before they are rounded once and stored.
struct ConvolutionStep {
  enum class Kind : std::uint8_t { kBias, kResidual, kRelu, kSigmoid, kTanh, kSwish, kGelu };
  Kind kind;  ///< kBias: plus one value per channel; kResidual: plus a tensor of the output's shape and layout.
  DataType type = DataType::kFloat32;  ///< Of the operand of kBias and kResidual.
  friend bool operator==(const ConvolutionStep&, const ConvolutionStep&) = default;
};

/// Channels innermost everywhere: x is (n, d..., c), weights (k, r..., c / groups), y (n, o..., k) in memory; shapes
/// are written with channels as dimension 1. One to three spatial dimensions.
struct ConvolutionSpec {
  Shape input, weights, output;
  std::vector<std::int64_t> strides, dilations, pads_begin, pads_end;
  std::int64_t groups = 1;
  /// float16, bfloat16, float32 (tf32 when `tf32`), int8; of generated kernels also uint8 (x alone: weights are int8).
  DataType operands = DataType::kFloat16;
  bool unsigned_weights = false;         ///< Of generated kernels, with integers: weights are uint8.
  DataType stored = DataType::kFloat16;  ///< Of y: float16, bfloat16 or float32; for int8 operands also int32.
  bool tf32 = false;
  std::vector<ConvolutionStep> steps;

  /// Of size 1, before the other spatial ones.
  void add_dimension() {
    for (Shape* shape : {&input, &weights, &output}) shape->insert(shape->begin() + 2, 1);
    for (std::vector<std::int64_t>* ones : {&strides, &dilations}) ones->insert(ones->begin(), 1);
    for (std::vector<std::int64_t>* zeros : {&pads_begin, &pads_end}) zeros->insert(zeros->begin(), 0);
  }
  friend bool operator==(const ConvolutionSpec&, const ConvolutionSpec&) = default;
};

/// Sums of int8 are asked of cuDNN for multiples of so many channels of a group: with 3, 4, 12 and 127, results on an
/// H200 with cuDNN 9.19 were wrong.
inline constexpr std::int64_t kIntegerChannels = 16;

/// Device addresses.
struct ConvolutionOperands {
  std::uint64_t x = 0, weights = 0, y = 0;
  std::vector<std::uint64_t> steps;  ///< Per ConvolutionSpec::steps; 0 for those without an operand.
};

/// One way of computing a spec, ready to be enqueued. Immutable; belongs to the context that made it.
class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  virtual std::size_t workspace_bytes() const = 0;
  /// What makes the same plan again: engine and knobs, one line of text.
  virtual std::string tactic() const = 0;
  /// Enqueues on the stream of the handle. `workspace`: device address, aligned to 256 bytes.
  virtual void run(const ConvolutionOperands& operands, std::uint64_t workspace) const = 0;
};

/// A cuDNN handle, bound to the current CUDA context and a stream (CUstream). Several threads may ask for plans at
/// once, each with this context; one at a time may run them.
class ConvolutionLibrary {
 public:
  /// Throws Error(kUnsupported) when cuDNN 9 is missing.
  explicit ConvolutionLibrary(void* stream);
  ~ConvolutionLibrary();
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  /// Plans in the order of cuDNN's heuristics (modes A, B, then fallback), at most `limit`, without Winograd, FFT,
  /// reduced-precision reductions, down-converted inputs and nondeterministic engines; without tensor cores for float32
  /// that is not tf32. Empty: cuDNN has none.
  std::vector<std::unique_ptr<ConvolutionPlan>> plans(const ConvolutionSpec& spec, std::size_t limit,
                                                      std::size_t workspace_limit) const;
  /// The plan of ConvolutionPlan::tactic(); null for other texts, and when this version has it no more.
  std::unique_ptr<ConvolutionPlan> plan(const ConvolutionSpec& spec, const std::string& tactic);
  /// "9.19.0". Throws Error(kUnsupported) when cuDNN 9 is missing.
  static std::string version();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Depthwise with as many output as input channels, a multiple of eight, and weights that fit into shared memory.
bool has_depthwise_source(const ConvolutionSpec& spec);

/// A generated kernel(x, weights, loads of the epilogue..., outputs...) for what cuDNN is slow at or refuses: depthwise
/// and grouped convolutions above all; right for every spec (steps are ignored). Where has_depthwise_source(), weights
/// are (r..., k) in memory. `epilogue`: a program without rows over the output's shape (n, k, o...) whose load 0 is the
/// sum; `loads`: its other loads, from index 1 on.
KernelSource convolution_source(const ConvolutionSpec& spec, const Program& epilogue,
                                std::span<const ProgramInput> loads, std::span<const ProgramOutput> outputs);

}  // namespace ulpscope::cuda
