// What the library has, as functions and classes for the package's own modules.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// The reference interpreter, for tests: every operator's reference kernel, one after the other, without an engine.
/// Adds `reference_run(model: bytes, inputs: list) -> list`, `operators() -> list[(domain, name, since, rule, has a
/// derivative)]` and the precisions.
void bind_reference(nanobind::module_& module);
/// Adds the class `Model` (made by `from_file` and `from_bytes`), `ModelOptions` and `use_python`.
void bind_model(nanobind::module_& module);
/// Adds the class `Criterion`: CriterionOptions, whose metric may be a callable.
void bind_criterion(nanobind::module_& module);
/// Adds the class `Answer`: an AnswerFile, which `ulpscope.Answer` reads as JSON.
void bind_answer(nanobind::module_& module);
/// Adds the class `Engine`, with `from_file`, `from_bytes`, `from_answer`, `inputs`, `outputs`, `layers` and `run`.
/// Specifications of tensors are tuples (name, dtype, shape), layers (name, op, precision, reason, nodes).
void bind_engine(nanobind::module_& module);
/// Runs between tensors of DLPack: adds the classes `DeviceTensor` and `BoundRun`, and the functions `run_on_device`
/// and `bind`, which take an `Engine`.
void bind_device(nanobind::module_& module);
/// Adds `load_inputs`, `load_outputs` and `generate_inputs`.
void bind_samples(nanobind::module_& module);
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
