// One pass over memory for the programs of neighboring steps.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "backend/cpu/plan.h"
#include "backend/cpu/product.h"
#include "backend/cpu/program.h"

namespace ulpscope::cpu {

/// Makes the kernel of a step that adds up products of integers, channels last: of the type float32 the sums are what
/// it leaves, else the bytes that they become; null: it cannot make these.
using SumsMaker = std::function<std::unique_ptr<Kernel>(const Requantization& form)>;

/// `programs`: per step that is one, by its number; these have no kernels yet, and get them. Programs that follow each
/// other and compute over the same domain become one step, so that what they hand to each other stays in registers;
/// what is quantized once already is not quantized again. Every value is computed by the same instructions as before.
/// `sums`: per such step, which has no kernel yet either: where a program behind it makes bytes of its sums, and
/// nothing else reads these, the step makes the bytes itself.
void join_programs(Steps& steps, std::map<int, ProgramForm> programs, std::map<int, SumsMaker> sums = {});

}  // namespace ulpscope::cpu
