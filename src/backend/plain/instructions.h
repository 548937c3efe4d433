// What each instruction of a program means, one number at a time.
#pragma once

#include <span>

#include "graph/program.h"

namespace ulpscope::plain {

/// The nearest float32 of the instruction computed in float64. `b`: of binary instructions only.
float apply(const Program::Value& instruction, float a, float b);

/// The nearest float32 of a row reduction computed in float64.
float reduce(Instruction instruction, std::span<const float> row);

}  // namespace ulpscope::plain
