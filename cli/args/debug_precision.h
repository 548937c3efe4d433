// The options of `debug precision`.
#pragma once

#include "args/iterative_debug.h"
#include "args/precision.h"

namespace ulpscope::cli {

struct DebugPrecisionArgs {
  CheckArgs check;
  ArtifactArgs artifacts;
  IterationArgs iteration;
  PrecisionOptions precision;
  std::optional<std::string> mode, direction, type;

  void declare(OptionTable& table);
};

}  // namespace ulpscope::cli
