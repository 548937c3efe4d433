// TensorRT's calibration cache: the scales of int8 tensors as text, docs/formats.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ulpscope/calibrate.h"

namespace ulpscope {

/// Throws Error(kInvalidFile) that starts with "[calibration cache] 'source', line 3: expected ...", or names the
/// tensor whose scale makes no sense. `source`: for messages. Empty lines, blanks at the end of a line and CR LF are
/// fine; so is a tensor that comes twice with the same scale.
CalibrationCache parse_calibration_cache(std::string_view text, const std::string& source);
/// The text; names that cannot be in it (with a line break) are left out with a warning.
std::string to_text(const CalibrationCache& cache);

/// Nothing when there is no such file or only white space in it: it is to be calibrated then. Throws Error: kIo,
/// kInvalidFile.
std::optional<CalibrationCache> find_calibration_cache(const std::filesystem::path& path);

}  // namespace ulpscope
