// Sources that steps share. A search plans the same kernels again and again: what was generated from an equal
// description is not generated a second time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/cuda/attention_source.h"
#include "backend/cuda/convolution.h"
#include "backend/cuda/movement_source.h"
#include "backend/cuda/product_source.h"
#include "backend/cuda/program_source.h"

namespace ulpscope::cuda {

/// A source with what names it.
struct NamedSource : KernelSource {
  explicit NamedSource(KernelSource made);
  std::string hash;  ///< hash_of() the text.
};
/// Never null in a step.
using SharedSource = std::shared_ptr<const NamedSource>;

/// Of a source that is made once.
SharedSource shared(KernelSource source);

/// What the generators of these names give, kept for the process while there is room. Thread-safe.
SharedSource shared_program(const ProgramSpec& spec);
SharedSource shared_copy(const StridedTensor& in, const StridedTensor& out);
/// Null: there is no form for it.
SharedSource shared_attention(const AttentionSpec& spec, int warp_group_processors);
SharedSource shared_convolution(const ConvolutionSpec& spec, const Program& epilogue,
                                std::span<const ProgramInput> loads, std::span<const ProgramOutput> outputs);

/// As FusedProductKernel.
struct SharedProduct {
  SharedSource source;
  BoxedMatrix a, b;
};
SharedProduct shared_product(const FusedProductSpec& spec, const ProductTile& tile, int processors);

}  // namespace ulpscope::cuda
