// What the generated kernels of convolutions share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/cuda/convolution.h"
#include "backend/cuda/eight_code.h"

namespace ulpscope::cuda {

/// A convolution with three spatial dimensions and what follows its sums.
struct ConvolutionCode {
  ConvolutionCode(const ConvolutionSpec& spec, const Program& epilogue, std::span<const ProgramInput> loads,
                  std::span<const ProgramOutput> outputs);

  ConvolutionSpec spec;  ///< Of rank 5: dimensions of size 1 in front of the spatial ones.
  std::size_t rank;      ///< The spatial dimensions that there were.
  const Program& epilogue;
  std::vector<ProgramInput> inputs;  ///< As the program numbers them: 0 is the sum.
  std::vector<ProgramOutput> outputs;

  bool integers() const { return spec.operands == DataType::kInt8 || spec.operands == DataType::kUInt8; }
  DataType weights_type() const {
    if (!integers()) return spec.operands;
    return spec.unsigned_weights ? DataType::kUInt8 : DataType::kInt8;
  }
  /// What a kernel begins with: everything in the spec by name, multiply_add(Sum, Sum, Sum), and the types
  /// Sum and Index, of positions of the output.
  std::string constants() const;
  /// extern "C" __global__ ... kernel(...) { begin(); for blocks of that many threads.
  std::string header(unsigned threads) const;
  /// An expression of type Sum: element `offset` of x or weights.
  std::string operand(DataType type, const std::string& pointer, const std::string& offset) const;
  /// Statements that load 8 elements with consecutive channels into `Sum NAME[8]`.
  std::string operands(const std::string& name, DataType type, const std::string& pointer,
                       const std::string& offset) const;
  /// Statements that store what becomes of `sum` (of type Sum) at n, k, od, oh, ow.
  std::string element(const std::string& sum) const;
  /// The same for eight channels from k on.
  VectorizedProgramSource eight() const;

 private:
  std::vector<std::string> index(const std::string& channel) const;
};

/// As many threads keep a GPU busy; threads compute more where there would be more of them.
constexpr std::int64_t kBusyThreads = 131072;

/// For every spec.
KernelSource tiled_source(const ConvolutionCode& code, std::int64_t busy_threads = kBusyThreads);

/// REQUIRES: has_depthwise_source(). Eight channels per thread.
KernelSource depthwise_source(const ConvolutionCode& code, std::int64_t busy_threads = kBusyThreads);

}  // namespace ulpscope::cuda
