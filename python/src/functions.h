// What the program does, as functions for the package's own modules.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// Adds the class `Answer`: an AnswerFile, which `ulpscope.Answer` reads as JSON.
void bind_answer(nanobind::module_& module);
/// Adds `SearchOptions` and `search`, which returns the answer and whether Ctrl-C ended it.
void bind_search(nanobind::module_& module);
/// Adds `ConvertOptions` and `convert`.
void bind_convert(nanobind::module_& module);
/// Adds `calibrate`, `read_calibration_cache`, `write_calibration_cache` and `use_calibration`.
void bind_calibrate(nanobind::module_& module);
/// Adds `measure_target`.
void bind_target(nanobind::module_& module);
/// Adds `verify`.
void bind_verify(nanobind::module_& module);

}  // namespace ulpscope::python
