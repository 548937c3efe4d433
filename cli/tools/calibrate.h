// int8 scales for the engine: from --calibration-cache, or by calibration with the data that the options give.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "args/network_args.h"
#include "calibration/calibration.h"
#include "runners/script_host.h"
#include "tools/network_setup.h"

namespace ulpscope::cli {

/// --calib-base-cls and --quantile. Throws Error for names and numbers that make no sense.
CalibrationOptions calibration_options(const TrtConfigArgs& config);

/// The samples that --load-inputs, --data-loader-script or generated data are, one at a time. `shapes`: for dynamic
/// inputs that --input-shapes does not name. The arguments and the host outlive the source.
SampleSource sample_source(const DataLoaderArgs& data, const ModelArgs& model, ScriptHost& host, const Network& network,
                           std::vector<std::pair<std::string, Shape>> shapes);

/// Sets `loaded.build.scales` if int8 is allowed and they are not there already: reads the cache, or calibrates with
/// `args.data` and writes the cache that was asked for. Does nothing for strongly typed networks; networks with
/// QuantizeLinear layers bring their scales and are not calibrated without a cache. Sets the typical shapes of inputs
/// that have none to those of the first sample. Warns when generated data is used. Then does the repairs that --repairs
/// asks for. Throws Error.
void add_scales(const NetworkArgs& args, ScriptHost& host, LoadedNetwork& loaded);

}  // namespace ulpscope::cli
