// The times that engines were built with, as a file: --save-timing-cache.
#pragma once

#include <filesystem>

#include "runtime/engine.h"

namespace ulpscope::cli {

/// Adds the estimated times of the engine's groups to the file, by what they compute and on which target, and what its
/// backend measured; entries of other builds and devices stay. A file that is there and is none of these is an
/// Error(kInvalidFile). Throws Error(kIo).
void save_timing_cache(const std::filesystem::path& path, const Engine& engine);

}  // namespace ulpscope::cli
