// What the tools that search precisions start from: options, network, samples, golden outputs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/loaded_model.h"
#include "args/debug.h"
#include "compare/comparison.h"
#include "compare/tensor_map.h"
#include "engine/options.h"
#include "precision/trials.h"
#include "runners/script_host.h"
#include "ulpscope/model.h"

namespace ulpscope::cli {

/// What to compare with.
struct GoldenResults {
  std::string runner;
  /// Per iteration, under the network's names and in its order; all the same outputs, at least one.
  std::vector<TensorMap> iterations;
};

struct PrecisionSetup {
  std::unique_ptr<ScriptHost> host;
  Model model = ModelAccess::handle(nullptr);
  /// That of the model: with scripts, outputs, --layer-precisions and types applied.
  std::shared_ptr<Network> network;
  /// Obey, unless --precision-constraints says prefer; assume_lowest, unless --cost-model was given; scales for int8.
  BuildOptions build;
  /// Of --golden; none without it. Read before anything is calibrated, so that a wrong file is found at once.
  std::optional<GoldenResults> golden;
};

/// Loads the network and decides what it is built for. The options outlive the result. Throws Error: an engine as
/// MODEL, a strongly typed network, no precision enabled but float32, --precision-constraints none.
PrecisionSetup make_precision_setup(const PrecisionOptions& options);

/// The inputs as `run` makes them, fitted to the network; `iterations` of generated ones unless --iterations tells.
/// Throws Error for inputs that do not fit, and when there are none.
std::vector<TensorMap> make_samples(const PrecisionOptions& options, PrecisionSetup& setup, int iterations = 1);

/// Reads the results of --golden and finds a partner for each output of `network`, as `run` pairs outputs; those
/// without one are left out with a warning, and refused if `needs` says so. Of several runners the first counts, with a
/// warning. Throws Error: no such file, no results (a pickle: with the command that converts it), no iteration, no
/// output in common.
GoldenResults load_golden(const std::string& path, const Network& network,
                          const std::function<bool(const std::string&)>& needs = {});

/// Samples and golden outputs of equal number: the first of whichever there are more, with a warning.
void match_counts(std::vector<TensorMap>& samples, GoldenResults& golden);

/// Runs the network with every layer in float32 and holds golden results against that. Throws Error, naming output and
/// iteration: another shape (unless `options` allow that), NaN, infinities (unless they compare equal); warns when the
/// outputs do not match within the tolerances, since then hardly any precisions will.
void check_golden_results(Trials& trials, GoldenResults& golden, const PrecisionOptions& options,
                          std::span<const CompareFunction> functions);

}  // namespace ulpscope::cli
