// Weights of a product that are a few bits each, with their scales: for kernels that multiply by what these stand for,
// and read the few bits alone.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backend/prepared_constants.h"

namespace ulpscope {

/// A matrix [n, k] of elements; the value of each is float32(element * scale), rounded as the product reads it.
struct NarrowWeights {
  std::string key;                ///< Names the elements and their scales in the cache.
  Format format = Format::kInt4;  ///< int4, int8, fp8 e4m3 or fp4 e2m1.
  std::int64_t n = 0, k = 0;
  std::int64_t block = 0;    ///< Elements along k that share a scale; k: all of a row.
  bool half_scales = false;  ///< float16 holds all scales.
  struct Matrix {
    Tensor elements;  ///< float32 [n, k].
    Tensor scales;    ///< float32 [n, (k + block - 1) / block].
  };
  std::function<Matrix()> make;  ///< Refers to the network.
};

/// Those of a MatMul or Gemm by one constant matrix whose precision stores them so, or that the file has behind a
/// DequantizeLinear. Nothing where they are other constants, have zero points that differ, or are rounded before they
/// are read.
std::optional<NarrowWeights> narrow_weights(const Specialization& spec, const PreparedConstants& constants,
                                            const ProductKernel& kernel);

}  // namespace ulpscope
