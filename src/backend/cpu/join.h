// One pass over memory for the programs of neighboring steps.
#pragma once

#include <map>

#include "backend/cpu/plan.h"
#include "backend/cpu/program.h"

namespace ulpscope::cpu {

/// `programs`: per step that is one, by its number; these have no kernels yet, and get them. Programs that follow each
/// other and compute over the same domain become one step, so that what they hand to each other stays in registers;
/// what is quantized once already is not quantized again. Every value is computed by the same instructions as before.
void join_programs(Steps& steps, std::map<int, ProgramForm> programs);

}  // namespace ulpscope::cpu
