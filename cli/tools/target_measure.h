// Measuring a target, by `target measure` and before a search with --target measured.
#pragma once

#include <filesystem>
#include <string>

#include "ulpscope/target.h"

namespace ulpscope::cli {

/// A line of the log per figure; ends the command after Ctrl-C.
void show_measuring(const std::string& what);

/// Measures rates and the groups of a model, writes the file, and says so.
void measure_target_of(const std::filesystem::path& file, const Model& model, const TensorsByName& sample);

/// Where a search with --target measured keeps the target: "m.fp16.answer.json" has "m.fp16.target.json".
std::filesystem::path target_beside(std::filesystem::path answer);

}  // namespace ulpscope::cli
