// What layers compute in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ulpscope/export.h"

namespace ulpscope {

/// How a layer computes; always with an fp32 accumulator (int8: int32). `Weights`: its constant weights alone are in
/// the format, its activations in the next higher enabled float.
enum class Precision : std::uint8_t {
  kFP32,
  kTF32,
  kFP16,
  kBF16,
  kFP8,
  kINT8,
  kMXFP8,
  kNVFP4,
  kMXFP4,
  kINT8Weights,
  kFP8Weights,
  kMXFP8Weights,
  kNVFP4Weights,
  kMXFP4Weights,
  kINT4,         ///< Weights alone, in blocks of 128.
  kINT4Block64,  ///< The same in blocks of 64,
  kINT4Block32,  ///< and of 32.
};
inline constexpr std::size_t kPrecisionCount = 17;

/// "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "mxfp8", "nvfp4", "mxfp4", "int8-weights", ..., "int4", "int4-64",
/// "int4-32".
ULPSCOPE_API std::string_view name_of(Precision precision) noexcept;
/// The one of this name, if there is one.
ULPSCOPE_API std::optional<Precision> precision_named(std::string_view name) noexcept;

}  // namespace ulpscope
