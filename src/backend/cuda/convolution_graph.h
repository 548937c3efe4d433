// A convolution as an operation graph of cuDNN, and the engine configurations that compute it by our rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/convolution.h"
#include "backend/cuda/cudnn.h"

namespace ulpscope::cuda {

/// What plans are made for: the device of a handle or, for making plans only, the one that a descriptor describes.
struct ConvolutionDevice {
  cudnn::Handle handle = nullptr;
  const cudnn::Descriptor* properties = nullptr;
};

/// An engine of cuDNN and its settings; all that makes a plan again.
struct ConvolutionTactic {
  std::int64_t engine = 0;
  std::vector<std::pair<int, std::int64_t>> knobs;  ///< Type and value, ascending.
  friend bool operator==(const ConvolutionTactic&, const ConvolutionTactic&) = default;
};

/// "engine 39 knobs 2=1,17=3"; without knobs "engine 4".
std::string text_of(const ConvolutionTactic& tactic);
/// The reverse; nothing for other text.
std::optional<ConvolutionTactic> tactic_from_string(const std::string& text);

/// A finalized execution plan and what it refers to.
struct ConvolutionExecution {
  std::vector<cudnn::Descriptor> knobs;
  cudnn::Descriptor engine, config, plan;
};

class ConvolutionGraph {
 public:
  // The names of the tensors of a graph, for variant packs; operands of steps are kFirstStep + their index.
  static constexpr std::int64_t kX = 1, kWeights = 2, kY = 3, kFirstStep = 10;

  /// Throws Error(kUnsupported) for a spec that cuDNN refuses, Error(kBuild) when it fails.
  ConvolutionGraph(const ConvolutionSpec& spec, const ConvolutionDevice& device);

  /// What the heuristics of this mode suggest and what keeps the rules of ConvolutionLibrary::plans, best first; empty
  /// when the mode knows nothing.
  std::vector<ConvolutionTactic> tactics(cudnn::HeuristicsMode mode) const;
  /// Nothing when cuDNN cannot compute this graph so, or breaks the rules with it.
  std::optional<ConvolutionExecution> build(const ConvolutionTactic& tactic) const;

  const ConvolutionSpec& spec() const noexcept { return spec_; }
  const ConvolutionDevice& device() const noexcept { return device_; }

 private:
  cudnn::Descriptor& tensor(std::int64_t id, const Shape& shape, DataType type, bool is_virtual);
  void add_forward(const cudnn::Descriptor& x, const cudnn::Descriptor& weights, const cudnn::Descriptor& y);
  void add_pointwise(cudnn::PointwiseMode mode, const cudnn::Descriptor& x, const cudnn::Descriptor* operand,
                     const cudnn::Descriptor& y);
  bool keeps_rules(const cudnn::Descriptor& engine) const;

  ConvolutionSpec spec_;
  ConvolutionDevice device_;
  std::vector<std::unique_ptr<cudnn::Descriptor>> parts_;  ///< What graph_ refers to.
  std::vector<cudnn::RawDescriptor> operations_;
  cudnn::Descriptor graph_;
};

}  // namespace ulpscope::cuda
