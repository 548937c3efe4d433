// The network and the inputs that a command line asks for: what all tools that run models share.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "api/loaded_model.h"
#include "args/inference.h"
#include "args/network_args.h"
#include "compare/data_loader.h"
#include "compare/tensor_map.h"
#include "runners/script_host.h"

namespace ulpscope::cli {

/// A host for users' scripts, with the time limits of the options and Ctrl-C. The limits hold for all workers that are
/// started from now on. `onnx` outlives the host.
std::unique_ptr<ScriptHost> make_script_host(const OnnxLoadArgs& onnx, const PythonLimitArgs& limits);

/// Loads MODEL (an ONNX file or a network script), applies scripts, outputs, precisions and types in Polygraphy's
/// order, and makes the build options, with those of config scripts. The host outlives the model. Throws Error.
Model load_network(const NetworkArgs& args, ScriptHost& host);

/// Shapes for dynamic inputs that --input-shapes does not name: the profile's.
std::vector<std::pair<std::string, Shape>> profile_shapes(const TrtConfigArgs& config, const ModelArgs& model);

/// The same for a network that nothing is said about: dimensions behind the first are 1, or else the first of 8, 32,
/// 64, 128, 224 and 256 that the network can be run with. Throws Error: what the network says of 1, and how to say
/// shapes.
std::vector<std::pair<std::string, Shape>> fitting_shapes(const Network& network, const ModelArgs& model);

/// The inputs of the next iteration; nothing at the end.
using InputSource = std::function<std::optional<TensorMap>()>;
/// Of files, which are read one after another, or of a script; as they were loaded. `what` ("input data"): for the log.
InputSource loaded_inputs(const DataLoaderArgs& data, ScriptHost& host, const std::vector<InputBinding>& bindings,
                          const std::string& what);
/// `default_shapes`: for dynamic inputs that --input-shapes does not name. `iterations`: where --iterations says
/// nothing.
InputSource generated_inputs(const ModelArgs& model, const DataLoaderArgs& data,
                             const std::vector<InputBinding>& bindings,
                             const std::vector<std::pair<std::string, Shape>>& default_shapes, int iterations);

/// The inputs of all iterations: generated, loaded or from a script. Generated ones fit the bindings; others are as
/// they were loaded (see adapt_inputs). `iterations`: of generated inputs, where --iterations says nothing.
std::vector<TensorMap> make_inputs(const ModelArgs& model, const DataLoaderArgs& data, ScriptHost& host,
                                   const std::vector<InputBinding>& bindings,
                                   const std::vector<std::pair<std::string, Shape>>& default_shapes,
                                   int iterations = 1);

/// Throws Error where files or a script gave no inputs at all.
void check_any_inputs(std::size_t samples, const DataLoaderArgs& data);

/// Samples for public functions.
TensorsByName by_name(const TensorMap& sample);
std::vector<TensorsByName> by_name(const std::vector<TensorMap>& samples);

}  // namespace ulpscope::cli
