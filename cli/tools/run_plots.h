// Pictures of errors, drawn in the Python worker.
#pragma once

#include <functional>

#include "args/comparison.h"
#include "compare/comparison.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

/// What `simple` calls for every output; nothing if no plots are asked for. Finds out at once whether plots can be
/// made: throws Error when matplotlib is missing, a folder cannot be made, or there is no display to show them on.
/// `host` and `args` outlive it.
std::function<void(const ComparedOutput&)> make_plotter(const ComparisonArgs& args, ScriptHost& host);

}  // namespace ulpscope::cli
