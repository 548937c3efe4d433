// What is used of cuBLASLt, declared here: its headers are not needed to build, nor the library to start.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/driver.h"
#include "backend/cuda/library.h"

namespace ulpscope::cuda::lt {

// cublasLt.h of CUDA 12 and 13; tests/backend/cuda_declarations.cpp compares with the real one.
using Handle = struct OpaqueHandle*;
using Descriptor = struct OpaqueDescriptor*;
using MatrixLayout = struct OpaqueLayout*;
using Preference = struct OpaquePreference*;
struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
/// cudaDataType.
enum ElementType {
  kReal32F = 0,
  kReal64F = 1,
  kReal16F = 2,
  kReal8I = 3,
  kReal32I = 10,
  kReal16BF = 14,
  kReal8FE4M3 = 28
};
enum ComputeType { kCompute32F = 68, kCompute64F = 70, kCompute32I = 72, kComputeTF32 = 77 };
enum DescriptorAttribute { kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kFastAccumulation = 25 };
enum LayoutAttribute { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute { kMaxWorkspace = 1, kReductionSchemes = 3, kAlignmentA = 5 };  // B, C, D follow.
enum Epilogue : std::uint32_t { kEpilogueNone = 1, kEpilogueRelu = 2, kEpilogueBias = 4 };
/// Split sums are added in the type that they are computed in; never in the narrower one of the result, never by
/// atomic operations.
inline constexpr std::uint32_t kNeverReduce = 0, kReduceInComputeType = 2;

/// cuBLASLt's functions; the library stays open. Throws Error(kUnsupported) when it is missing.
struct CublasLt {
  Library library{{"libcublasLt.so.13", "libcublasLt.so.12"}, "nvidia-cublas"};
  int (*create)(Handle*) = library.function("cublasLtCreate");
  int (*destroy)(Handle) = library.function("cublasLtDestroy");
  std::size_t (*version)() = library.function("cublasLtGetVersion");
  int (*matmul)(Handle, Descriptor, const void* alpha, const void* a, MatrixLayout, const void* b, MatrixLayout,
                const void* beta, const void* c, MatrixLayout, void* d, MatrixLayout, const Algorithm*, void* workspace,
                std::size_t, Stream) = library.function("cublasLtMatmul");
  int (*descriptor_create)(Descriptor*, int compute, int scale_type) = library.function("cublasLtMatmulDescCreate");
  int (*descriptor_destroy)(Descriptor) = library.function("cublasLtMatmulDescDestroy");
  int (*descriptor_set)(Descriptor, int attribute, const void*,
                        std::size_t) = library.function("cublasLtMatmulDescSetAttribute");
  int (*layout_create)(MatrixLayout*, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t leading) = library.function("cublasLtMatrixLayoutCreate");
  int (*layout_destroy)(MatrixLayout) = library.function("cublasLtMatrixLayoutDestroy");
  int (*layout_set)(MatrixLayout, int attribute, const void*,
                    std::size_t) = library.function("cublasLtMatrixLayoutSetAttribute");
  int (*preference_create)(Preference*) = library.function("cublasLtMatmulPreferenceCreate");
  int (*preference_destroy)(Preference) = library.function("cublasLtMatmulPreferenceDestroy");
  int (*preference_set)(Preference, int attribute, const void*,
                        std::size_t) = library.function("cublasLtMatmulPreferenceSetAttribute");
  int (*heuristic)(Handle, Descriptor, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, Preference, int wanted,
                   HeuristicResult*, int* found) = library.function("cublasLtMatmulAlgoGetHeuristic");
  int (*algorithm_check)(Handle, Descriptor, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, const Algorithm*,
                         HeuristicResult*) = library.function("cublasLtMatmulAlgoCheck");
};

}  // namespace ulpscope::cuda::lt
