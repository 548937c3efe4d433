// Which vector instructions kernels are chosen for.
#pragma once

#include <string_view>

namespace ulpscope {

/// From the least to the most.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

/// "baseline", "avx2", "avx512".
std::string_view name_of(InstructionSet set) noexcept;

/// The most that this processor has.
InstructionSet most_of_processor() noexcept;

/// What the environment variable ULPSCOPE_ISA names, read once; without it, or where check_instruction_set() refuses
/// it, the most that this processor has.
InstructionSet instruction_set() noexcept;

/// AVX-VNNI, dot products of bytes without AVX-512: of all sets it alone has no name for the compiler's tests.
bool has_avx_vnni() noexcept;

/// Whether dot products of bytes (VNNI) may be used where the processor has them: not if ONEDNN_MAX_CPU_ISA names a set
/// without them, whatever our own kernels are of.
bool allows_byte_products() noexcept;

/// Throws Error unless ULPSCOPE_ISA is unset, or names a set that this processor has.
void check_instruction_set();

}  // namespace ulpscope
