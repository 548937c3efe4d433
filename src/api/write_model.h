// What all functions that write a model have in common.
#pragma once

#include <filesystem>
#include <vector>

#include "api/loaded_model.h"
#include "convert/convert.h"

namespace ulpscope {

/// write_typed_model() of a loaded model, with its file, folder, hash and the program's version; onnx.checker and ONNX
/// Runtime look at the file where `python_checks` and `typed.verify` say so. Logs what was written.
TypedModel write_checked_model(const LoadedModel& model, const Specialization& spec, const Assignment& assignment,
                               const std::vector<Repair>& repairs, TypedModelOptions typed, bool python_checks,
                               const std::filesystem::path& path);

}  // namespace ulpscope
