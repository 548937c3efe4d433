// What the program adds to the answer of a search: what it is about, and how to reproduce it.
#pragma once

#include <string>
#include <vector>

#include "args/search.h"
#include "precision/answer_json.h"
#include "precision/search.h"
#include "tools/precision_setup.h"

namespace ulpscope::cli {

/// "none", "pointwise", "full".
std::string_view name_of(Fusion fusion) noexcept;

/// The flags of the enabled precisions ("--fp16", ...), without the dashes.
std::vector<std::string> enabled_precisions(const BuildOptions& build);

/// The words after `ulpscope run MODEL` that build the network of the answer. `calibration_cache`: empty for none.
std::vector<std::string> run_options(const PrecisionOptions& options, const Answer& answer, const Network& network,
                                     const SearchOptions& search, const std::string& calibration_cache,
                                     const std::string& answer_path);

/// Adds layers that --keep names to those that were found; they are marked as requested.
void add_requested_layers(const Network& network, const SearchOptions& search, Answer& answer);

}  // namespace ulpscope::cli
