// Products of matrices through cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/driver.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// A matrix, or `batch` of them, in device memory; rows of `columns` elements, strides in elements.
struct MatrixOperand {
  std::int64_t row_stride = 0, column_stride = 1;  ///< One of them is 1 (or the dimension has one element).
  std::int64_t batch_stride = 0;
  friend bool operator==(const MatrixOperand&, const MatrixOperand&) = default;
};

/// d[b, m, n] = round(relu(sum_k a[b, m, k] b[b, k, n] + bias[n] + residual[b, m, n])), sums in float32 (int32 for
/// int8). Of fp8 the sums are those of its tensor cores, times MatrixProductOperands::factor, rounded to float32; there
/// is no residual, since cuBLASLt adds it in one rounding with that product.
struct MatrixProductSpec {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DataType operands = DataType::kFloat16;  ///< float16, bfloat16, float32, float64, int8, fp8 e4m3.
  DataType result = DataType::kFloat16;    ///< As operands, or float32; int32 for int8; of fp8 any float but fp8.
  bool tf32 = false;
  bool fast = false;                                  ///< fp8: cuBLASLt's fast accumulation.
  MatrixOperand a, b, d;                              ///< d: column_stride is 1. The residual lies as d does.
  bool bias = false, residual = false, relu = false;  ///< The bias has the type of the result.
  int alignment = 16;                                 ///< Bytes that all addresses are multiples of.
  /// Names the spec among tactics.
  std::string text() const;
};

/// Whether a bias is added before anything is rounded, as MatrixProductSpec says. Of 16-bit results it is where every
/// row begins at a multiple of 16 bytes: elsewhere algorithms that cuBLASLt 13.1 offers on an H100 round the sums
/// first, and are up to 2.5 ulp of the sums off (tests/gpu/matrix_check.cpp finds them). Products that it does not hold
/// for are not asked for.
bool adds_bias_before_rounding(const MatrixProductSpec& spec);

struct MatrixProductOperands {
  Address a = 0, b = 0, d = 0, bias = 0, residual = 0;
  float factor = 1;  ///< 1 but for fp8.
};

/// A cuBLASLt handle. Not thread-safe.
class MatrixLibrary {
 public:
  /// Throws Error(kUnsupported) when cuBLASLt is missing.
  MatrixLibrary();
  ~MatrixLibrary();
  MatrixLibrary(const MatrixLibrary&) = delete;
  MatrixLibrary& operator=(const MatrixLibrary&) = delete;

  class Product {
   public:
    virtual ~Product() = default;
    virtual std::size_t workspace_bytes() const = 0;
    /// The 64 bytes of cublasLtMatmulAlgo_t in hexadecimal digits.
    virtual std::string tactic() const = 0;
    /// Enqueues.
    virtual void run(const MatrixProductOperands& operands, Address workspace, Stream stream) const = 0;
  };
  /// In the order of cuBLASLt's heuristic, at most `limit`; empty: it has none.
  std::vector<std::unique_ptr<Product>> products(const MatrixProductSpec& spec, int limit,
                                                 std::size_t workspace_limit) const;
  /// The one of Product::tactic(); null for other texts, and when this version does not take it.
  std::unique_ptr<Product> product(const MatrixProductSpec& spec, const std::string& tactic) const;
  /// "13.1.0". Throws Error(kUnsupported) when cuBLASLt is missing.
  static std::string version();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulpscope::cuda
