// What layers compute in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ulpscope/export.h"

namespace ulpscope {

/// How a layer computes; always with an fp32 accumulator (int8: int32).
enum class Precision : std::uint8_t { kFP32, kTF32, kFP16, kBF16, kFP8, kINT8 };
inline constexpr std::size_t kPrecisionCount = 6;

/// "fp32", "tf32", "fp16", "bf16", "fp8", "int8".
ULPSCOPE_API std::string_view name_of(Precision precision) noexcept;
/// The one of this name, if there is one.
ULPSCOPE_API std::optional<Precision> precision_named(std::string_view name) noexcept;

}  // namespace ulpscope
