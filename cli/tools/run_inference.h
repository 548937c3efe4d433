// Runs every runner on the same inputs.
#pragma once

#include <memory>
#include <vector>

#include "compare/results.h"
#include "runners/runner.h"
#include "runners/script_host.h"
#include "tools/run_options.h"

namespace ulpscope::cli {

struct InferenceOutcome {
  std::vector<TensorMap> inputs;  ///< As they were made for the first runner.
  RunResults results;
};

/// Names the runners, activates one after another, and infers all iterations with it. Logs what Polygraphy logs.
/// `default_shapes`: for dynamic inputs that --input-shapes does not name.
InferenceOutcome run_inference(const RunOptions& options, std::vector<std::unique_ptr<Runner>>& runners,
                               ScriptHost& host, const std::vector<std::pair<std::string, Shape>>& default_shapes);

}  // namespace ulpscope::cli
