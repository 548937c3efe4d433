// Polygraphy's JSON files of inputs and of results. Arrays are .npy files in base64.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compare/results.h"

namespace ulpscope {

/// Whether saving at this path makes a folder with a file per iteration: the path has no extension, and is a folder, or
/// there is nothing yet and more than one iteration to save.
bool is_saved_as_folder(const std::filesystem::path& path, std::size_t iterations);

/// One TensorMap per iteration, as a JSON list, or as a folder of files. Throws Error(kIo), and Error(kUnsupported)
/// for a type that NumPy lacks.
void save_inputs(const std::filesystem::path& path, const std::vector<TensorMap>& iterations);
std::string inputs_to_json(const std::vector<TensorMap>& iterations);

/// A list of inputs, or the inputs of one iteration alone. A folder is read as its *.json files in the order of their
/// names. Throws Error(kNotFound), Error(kInvalidFile) naming the file and what is wrong in it.
std::vector<TensorMap> load_inputs(const std::filesystem::path& path);

/// A file, or a folder of files. Throws Error(kIo), and Error(kUnsupported) for a type that NumPy lacks.
void save_results(const std::filesystem::path& path, const RunResults& results);
std::string results_to_json(const RunResults& results);

/// Takes the current format and the older ones: other class names and markers, latin-1 text, .npz archives, bare
/// arrays. A folder: its *.json files, each one more iteration of the runners in the first. Throws Error(kNotFound),
/// Error(kInvalidFile) naming the file and what is wrong in it; a pickle is refused with the command that converts it.
RunResults load_results(const std::filesystem::path& path);

/// The same from text; `where` names it in messages.
std::vector<TensorMap> inputs_from_json(std::string_view text, const std::string& where);
RunResults results_from_json(std::string_view text, const std::string& where);

}  // namespace ulpscope
