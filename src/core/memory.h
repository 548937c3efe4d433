// How much memory a tensor may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ulpscope/data_type.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// The memory of this machine in bytes, or of the control group that the process runs in, if that is less.
std::uint64_t machine_memory() noexcept;

/// Memory for elements, aligned to 64 bytes, not initialized. Blocks of a MiB and more have pages of their own, huge
/// ones where the system has these: without them the first touch of every 4 KiB costs as much as filling them. Freed
/// pages wait for the next block of their size, within limits, and leave no gaps between others. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_elements(std::size_t bytes);

/// Bytes that allocate_elements has handed out and that are still held, in the whole process.
std::uint64_t held_element_bytes() noexcept;
/// The most that held_element_bytes() was since the last call of this.
std::uint64_t take_peak_element_bytes() noexcept;

/// Memory of the machine that the process has, and the most that it had; without what is mapped from files, and with
/// it. 0 where the system does not tell.
std::uint64_t anonymous_bytes() noexcept;
std::uint64_t peak_resident_bytes() noexcept;
/// What was freed and waits to be asked for again goes back to the system.
void give_back_freed_memory() noexcept;

/// What has been read of a mapped file may leave memory until it is touched again.
/// REQUIRES: nobody has written to these bytes.
void release_pages(const void* begin, std::size_t bytes) noexcept;

/// The bytes of a tensor; nothing where 64 bits cannot count them, nor those along its other dimensions if one is 0.
/// REQUIRES: no negative dimension.
std::optional<std::uint64_t> bytes_of(DataType type, const Shape& shape) noexcept;

/// "3.5 GiB".
std::string to_size_string(std::uint64_t bytes);

/// Why a tensor of this type and shape cannot be had: "shape (...) of float32 takes ..., this machine has ..."; empty
/// if it can. Systems hand out more memory than there is, and end the program once it is used.
std::string why_too_large(DataType type, const Shape& shape);

}  // namespace ulpscope
