// `ulpscope inspect`: what is in models, plans and saved data, and how two of them differ.
#pragma once

#include <filesystem>

namespace ulpscope::cli {

/// What a file holds, told by its first and last bytes.
enum class FileKind {
  kResults,          ///< Saved outputs (RunResults); also a folder of such files.
  kAccuracyResults,  ///< Saved verdicts (AccuracyResults).
  kAnswer,           ///< What `precision search` answered.
  kPlan,             ///< An engine of `--save-engine`.
  kJson,             ///< Other JSON.
  kOther,
};
/// Throws Error(kNotFound), Error(kIo).
FileKind sniff_file(const std::filesystem::path& path);

struct InspectDataOptions {
  bool all = false, show_values = false, histogram = false, json = false;
  int num_items = 3, line_width = 75;  ///< -1: no limit.
};
/// Logs (or prints, as JSON) saved inputs or results. Throws Error.
void inspect_data(const std::filesystem::path& path, const InspectDataOptions& options);

}  // namespace ulpscope::cli
