// How much memory a tensor may take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"

namespace ulpscope {

/// The memory of this machine in bytes, or of the control group that the process runs in, if that is less.
std::uint64_t machine_memory() noexcept;

/// The bytes of a tensor; nothing where 64 bits cannot count them, nor those along its other dimensions if one is 0. REQUIRES: no negative dimension.
std::optional<std::uint64_t> bytes_of(DataType type, const Shape& shape) noexcept;

/// "3.5 GiB".
std::string to_size_string(std::uint64_t bytes);

/// Why a tensor of this type and shape cannot be had: "shape (...) of float32 takes ..., this machine has ..."; empty
/// if it can. Systems hand out more memory than there is, and end the program once it is used.
std::string why_too_large(DataType type, const Shape& shape);

}  // namespace ulpscope
