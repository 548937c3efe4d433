// This machine's processor: products through oneDNN or by our own loops, programs of our own, the operators' reference
// kernels for the rest.
#pragma once

#include "backend/backend.h"

namespace ulpscope::cpu {

const Backend& cpu_backend();

/// Throws Error unless ULPSCOPE_ISA and ONEDNN_MAX_CPU_ISA are unset or name sets of instructions: the first one that
/// this processor has, the other one any, which is the most that oneDNN takes.
void check_instructions();

}  // namespace ulpscope::cpu
