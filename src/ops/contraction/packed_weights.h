// Weights of a few bits: codes with a scale and a zero point per block of a row (MatMulNBits).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "graph/network.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// Weights (n, k) of `bits` each: rows of `blocks` blocks of `block` codes that share a scale and a zero point. The
/// last block of a row may have codes that stand for nothing.
struct PackedWeights {
  std::int64_t n = 0, k = 0, bits = 4, block = 32;

  std::int64_t blocks() const { return (k + block - 1) / block; }
  std::int64_t block_bytes() const { return block * bits / 8; }
  std::int64_t zero_point_bytes() const { return (blocks() * bits + 7) / 8; }  ///< Of a row.
};

bool is_matmul_nbits(const Layer& layer);
/// As the attributes of a MatMulNBits have it. Throws Error where one is missing.
PackedWeights packed_weights_of(const Layer& layer);

/// The code at a position of a stream of bits, the lowest bits of each byte first.
inline int code_at(const std::uint8_t* stream, std::int64_t position, std::int64_t bits) {
  const std::int64_t at = position * bits;
  return stream[at / 8] >> (at % 8) & ((1 << bits) - 1);
}

/// out[i] = (code - zero) * scale of codes of 4 bits; how many of them are done: all but the last ones.
using Unpack = std::int64_t (*)(const std::uint8_t* codes, std::int64_t count, float zero, float scale, float* out);
/// Null where plain loops do it.
Unpack fast_unpack();

/// The values of its rows: (code - zero point) * scale. T: float, or double for derivatives of tests.
template <typename T>
class PackedRows {
 public:
  /// `zero_points`: not there for 2^(bits - 1).
  PackedRows(const PackedWeights& w, const Tensor& codes, const Tensor& scales, const Tensor& zero_points)
      : w_(w), codes_(codes.data<std::uint8_t>()), scales_(scales.cast(type_of<T>())) {
    if (!zero_points) return;
    if (zero_points.type() == DataType::kUInt8)
      packed_zeros_ = zero_points.data<std::uint8_t>();
    else
      zeros_ = zero_points.cast(type_of<T>());
  }

  void read(std::int64_t row, T* out) const { read(row, 0, w_.blocks(), out); }

  /// Of blocks [first, last) alone.
  void read(std::int64_t row, std::int64_t first, std::int64_t last, T* out) const {
    for (std::int64_t b = first; b < last; ++b, out += w_.block) {
      const std::int64_t at = row * w_.blocks() + b, count = std::min(w_.block, w_.k - b * w_.block);
      const std::uint8_t* codes = codes_ + at * w_.block_bytes();
      const T scale = scales_.template data<T>()[at], zero = zero_point(row, b);
      std::int64_t done = 0;
      if constexpr (std::is_same_v<T, float>)
        if (unpack_ != nullptr && w_.bits == 4) done = unpack_(codes, count, zero, scale, out);
      for (std::int64_t i = done; i < count; ++i) out[i] = (static_cast<T>(code_at(codes, i, w_.bits)) - zero) * scale;
    }
  }

 private:
  T zero_point(std::int64_t row, std::int64_t b) const {
    if (zeros_) return zeros_.template data<T>()[row * w_.blocks() + b];
    if (packed_zeros_ == nullptr) return static_cast<T>(1 << (w_.bits - 1));
    return static_cast<T>(code_at(packed_zeros_ + row * w_.zero_point_bytes(), b, w_.bits));
  }

  PackedWeights w_;
  const std::uint8_t* codes_;
  Tensor scales_, zeros_;
  const std::uint8_t* packed_zeros_ = nullptr;
  const Unpack unpack_ = fast_unpack();
};

}  // namespace ulpscope::ops
