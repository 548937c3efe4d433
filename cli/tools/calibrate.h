// int8 scales for the engine: from --calibration-cache, or by calibration with the data that the options give.
#pragma once

#include "args/network_args.h"
#include "runners/script_host.h"
#include "ulpscope/model.h"

namespace ulpscope::cli {

/// Sets the scales of the model if int8 is allowed and they are not there already: reads the cache, or calibrates with
/// `args.data` and writes the cache that was asked for. Does nothing for strongly typed networks; networks with
/// QuantizeLinear layers bring their scales and are not calibrated without a cache. Sets the typical shapes of inputs
/// that have none to those of the first sample. Warns when generated data is used. Then does the repairs that --repairs
/// asks for. Throws Error.
void add_scales(const NetworkArgs& args, ScriptHost& host, Model& model);

}  // namespace ulpscope::cli
