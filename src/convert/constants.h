// Constants of a typed file: what the model computes of them, what repairs changed, and what float16 does not hold.
#pragma once

#include <string>
#include <vector>

#include "engine/specialization.h"
#include "onnx/export.h"
#include "ulpscope/repair.h"

namespace ulpscope {

/// Adds them to `changes`, whose typing is there, and returns a sentence per kind, for the log. Warns of those that
/// layers in float16 read as infinite.
std::vector<std::string> prepare_constants(const Specialization& spec, const std::vector<Repair>& repairs,
                                           TypedChanges& changes);

}  // namespace ulpscope
