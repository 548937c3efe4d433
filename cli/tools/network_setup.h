// The network and the inputs that a command line asks for: what all tools that run models share.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "args/network_args.h"
#include "args/python_limit.h"
#include "compare/data_loader.h"
#include "compare/tensor_map.h"
#include "engine/options.h"
#include "backend/weights.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

/// A host for users' scripts, with the time limits of the options and Ctrl-C. The limits hold for all workers that are
/// started from now on. `onnx` outlives the host.
std::unique_ptr<ScriptHost> make_script_host(const OnnxLoadArgs& onnx, const PythonLimitArgs& limits);

struct LoadedNetwork {
  std::shared_ptr<Network> network;
  BuildOptions build;
  WeightCache weights;  ///< What calibration prepared.
};

/// Loads MODEL (an ONNX file or a network script), applies scripts, outputs, precisions and types in Polygraphy's
/// order, and makes the build options, with those of config scripts. Throws Error.
LoadedNetwork load_network(const NetworkArgs& args, ScriptHost& host);

/// Shapes for dynamic inputs that --input-shapes does not name: the profile's.
std::vector<std::pair<std::string, Shape>> profile_shapes(const TrtConfigArgs& config, const ModelArgs& model);

/// The inputs of all iterations: generated, loaded or from a script. Generated ones fit the bindings; others are as
/// they were loaded (see adapt_inputs). `iterations`: of generated inputs, where --iterations says nothing.
std::vector<TensorMap> make_inputs(const ModelArgs& model, const DataLoaderArgs& data, ScriptHost& host,
                                   const std::vector<InputBinding>& bindings,
                                   const std::vector<std::pair<std::string, Shape>>& default_shapes,
                                   int iterations = 1);

}  // namespace ulpscope::cli
